# Writes a table of all fits: mean and spread over seeds for each sample and number of domains.


localrules:
    summary,


rule summary:
    input:
        reports=sorted({row["report"] for row in plan.rows()}),
        scores=[row["scores"] for row in plan.rows() if row["scores"]],
    output:
        "results/summary.tsv",
    params:
        rows=plan.rows(),
    log:
        "logs/summary.log",
    conda:
        "../environment.yaml"
    script:
        "../scripts/summary.py"
