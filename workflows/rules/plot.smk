# Draws a fitted section.


rule plot:
    input:
        "results/{fitted}.h5ad",
    output:
        f"results/{{fitted}}.{config['plot_format']}",
    params:
        options=lambda wildcards: plan.plot_flags(plan.fitted[wildcards.fitted].sample),
    log:
        "logs/plot/{fitted}.log",
    benchmark:
        "benchmarks/plot/{fitted}.tsv"
    conda:
        "../environment.yaml"
    shell:
        "spatialpdvi plot {input:q} {params.options} -o {output:q} > {log:q} 2>&1"
