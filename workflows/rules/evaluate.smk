# Scores a fitted section against its labels.


rule evaluate:
    input:
        "results/{fitted}.h5ad",
    output:
        "results/{fitted}.scores.json",
    params:
        options=lambda wildcards: plan.evaluate_flags(plan.fitted[wildcards.fitted].sample),
    log:
        "logs/evaluate/{fitted}.log",
    benchmark:
        "benchmarks/evaluate/{fitted}.tsv"
    conda:
        "../environment.yaml"
    shell:
        "spatialpdvi evaluate {input:q} {params.options} --report {output:q} > {log:q} 2>&1"
