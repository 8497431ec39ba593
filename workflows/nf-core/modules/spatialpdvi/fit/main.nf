process SPATIALPDVI_FIT {
    tag "${meta.id}"
    label 'process_medium'

    // there is no container until the package is on conda-forge
    conda "${moduleDir}/environment.yml"

    input:
    tuple val(meta), path(sections)
    val k

    output:
    tuple val(meta), path("${prefix}/*.h5ad")  , emit: h5ad
    tuple val(meta), path("${prefix}.fit.json"), emit: report
    tuple val(meta), path("${prefix}.npz")     , emit: model, optional: true
    path "versions.yml"                        , emit: versions, topic: versions

    when:
    task.ext.when == null || task.ext.when

    script:
    def args    = task.ext.args ?: ''
    prefix      = task.ext.prefix ?: "${meta.id}"
    // exit code 3: stopped before it converged; the result is written
    def accept  = task.ext.accept_not_converged ? '|| [ $? -eq 3 ]' : ''
    // --output is a file for one section and a folder for several
    def several = sections instanceof List && sections.size() > 1
    def target  = several ? "${prefix}" : "${prefix}/${prefix}.h5ad"
    """
    # a folder that is writable in a container
    export MPLCONFIGDIR=./tmp/matplotlib
    mkdir -p ${prefix}

    spatialpdvi fit \\
        ${sections} \\
        --k ${k} \\
        --output ${target} \\
        --report ${prefix}.fit.json \\
        --threads ${task.cpus} \\
        ${args} ${accept}

    cat <<-END_VERSIONS > versions.yml
    "${task.process}":
        spatialpdvi: \$(spatialpdvi --version | sed 's/.*version //')
    END_VERSIONS
    """

    stub:
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    mkdir -p ${prefix}
    touch ${prefix}/${prefix}.h5ad
    touch ${prefix}.fit.json

    cat <<-END_VERSIONS > versions.yml
    "${task.process}":
        spatialpdvi: \$(spatialpdvi --version | sed 's/.*version //')
    END_VERSIONS
    """
}
