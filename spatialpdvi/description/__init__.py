"""What domains are like: sizes, composition, contacts, genes that vary within, and differences between conditions."""
