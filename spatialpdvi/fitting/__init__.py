"""The fit of one section: inputs, preparation, the loop over patches, the certificate and the result."""
