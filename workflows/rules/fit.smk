# One fit for each sample, number of domains and seed. A job that was killed resumes from its checkpoint.


rule fit:
    input:
        section=lambda wildcards: plan.source(wildcards.sample),
        # not ancient(): after a job that runs again, Snakemake would not notice that the parameters of the fit have changed
        estimates=lambda wildcards: plan.estimates([wildcards.sample], wildcards.k),
    output:
        section="results/{sample}/{sample}_k{k}_seed{seed}.h5ad",
        report="results/{sample}/{sample}_k{k}_seed{seed}.fit.json",
    params:
        options=lambda wildcards: plan.fit_flags(**wildcards),
        checkpoint=lambda wildcards, output: f"{os.path.dirname(output.section)}/{plan.checkpoint(**wildcards)}",
    threads: config["threads"]
    resources:
        mem_mb=lambda wildcards, input, attempt: plan.memory_mb(list(input.get("estimates", [])), attempt),
        runtime=config["runtime"],
        ending=ENDING,
    log:
        "logs/fit/{sample}_k{k}_seed{seed}.log",
    benchmark:
        "benchmarks/fit/{sample}_k{k}_seed{seed}.tsv"
    conda:
        "../environment.yaml"
    shell:
        "spatialpdvi fit {input.section:q} -o {output.section:q} --report {output.report:q} {params.options}"
        " --threads {threads} --checkpoint {params.checkpoint:q} --resume > {log:q} 2>&1 {resources.ending}"
