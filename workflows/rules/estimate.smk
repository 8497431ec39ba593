# Estimates the seconds and memory of a fit from the metadata of the file, in about a second.


localrules:
    estimate,


rule estimate:
    input:
        lambda wildcards: plan.source(wildcards.sample),
    output:
        "results/estimates/{sample}_k{k}.json",
    params:
        options=lambda wildcards: plan.estimate_flags(wildcards.sample, wildcards.k),
    log:
        "logs/estimate/{sample}_k{k}.log",
    benchmark:
        "benchmarks/estimate/{sample}_k{k}.tsv"
    conda:
        "../environment.yaml"
    shell:
        "spatialpdvi estimate {input:q} {params.options} --json {output:q} > {log:q} 2>&1"
