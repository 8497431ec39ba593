# Writes one page of HTML about all samples, with the fits of the first seed.


rule report:
    input:
        lambda wildcards: plan.pages()[wildcards.page],
    output:
        "results/{page}.html",
    params:
        options=plan.report_flags(),
    log:
        "logs/report/{page}.log",
    benchmark:
        "benchmarks/report/{page}.tsv"
    conda:
        "../environment.yaml"
    shell:
        "spatialpdvi report {input:q} {params.options} -o {output:q} > {log:q} 2>&1"
