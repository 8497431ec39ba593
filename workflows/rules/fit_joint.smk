# One joint fit of all samples, with one set of domains, for each number of domains and seed.
first = next(iter(plan.samples))


rule fit:
    input:
        sections=[plan.source(sample) for sample in plan.samples],
        estimates=lambda wildcards: plan.estimates(list(plan.samples), wildcards.k),
    output:
        sections=expand("results/joint/k{{k}}_seed{{seed}}/{sample}.h5ad", sample=plan.samples),
        report="results/joint/k{k}_seed{seed}/fit.json",
    params:
        options=lambda wildcards: plan.fit_flags(first, **wildcards),
        # one section is written to a file, several into a folder
        out=lambda wildcards, output: os.path.dirname(output.report) if len(plan.samples) > 1 else output.sections[0],
        checkpoint=lambda wildcards, output: f"{os.path.dirname(output.report)}/{plan.checkpoint(first, **wildcards)}",
    threads: config["threads"]
    resources:
        mem_mb=lambda wildcards, input, attempt: plan.memory_mb(list(input.get("estimates", [])), attempt),
        runtime=config["runtime"],
        ending=ENDING,
    log:
        "logs/fit/joint_k{k}_seed{seed}.log",
    benchmark:
        "benchmarks/fit/joint_k{k}_seed{seed}.tsv"
    conda:
        "../environment.yaml"
    shell:
        "spatialpdvi fit {input.sections:q} -o {params.out:q} --report {output.report:q} {params.options}"
        " --threads {threads} --checkpoint {params.checkpoint:q} --resume > {log:q} 2>&1 {resources.ending}"
