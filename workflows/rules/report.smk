# Writes one page of HTML about all samples, with the fits of the first seed. Counts that the fitted files do not have are
# read from the sections.


rule report:
    input:
        sections=lambda wildcards: plan.pages()[wildcards.page],
        counts=lambda wildcards: plan.counts(wildcards.page),
    output:
        "results/{page}.html",
    params:
        options=plan.report_flags(),
        counts=lambda wildcards: plan.counts_flags(wildcards.page),
    log:
        "logs/report/{page}.log",
    benchmark:
        "benchmarks/report/{page}.tsv"
    conda:
        "../environment.yaml"
    shell:
        "spatialpdvi report {input.sections:q} {params.counts} {params.options} -o {output:q} > {log:q} 2>&1"
