# A table of all fits: for each sample and number of domains the mean over seeds, and the spread.


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
