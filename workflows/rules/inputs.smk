# Prepares inputs that a fit cannot read directly.


localrules:
    link,


rule bin:
    input:
        lambda wildcards: plan.samples[wildcards.sample].path,
    output:
        "results/inputs/{sample}.h5ad",
    params:
        options=lambda wildcards: plan.bin_flags(wildcards.sample),
    wildcard_constraints:
        sample=any_of([name for name, sample in plan.samples.items() if sample.is_raw]),
    resources:
        mem_mb=lambda wildcards, attempt: config["mem_mb"] * attempt,
        runtime=config["runtime"],
    log:
        "logs/bin/{sample}.log",
    benchmark:
        "benchmarks/bin/{sample}.tsv"
    conda:
        "../environment.yaml"
    shell:
        "spatialpdvi bin {input:q} {params.options} -o {output:q} > {log:q} 2>&1"


# a joint fit distinguishes its files by their names, and its outputs have the same names
rule link:
    input:
        lambda wildcards: plan.samples[wildcards.sample].path,
    output:
        "results/inputs/{sample}.h5ad",
    wildcard_constraints:
        sample=any_of([name for name, sample in plan.samples.items() if not sample.is_raw]),
    log:
        "logs/link/{sample}.log",
    conda:
        "../environment.yaml"
    shell:
        "ln -sf \"$(realpath {input:q})\" {output:q} 2> {log:q}"
