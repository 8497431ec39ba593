"""What the stages of a fit cost, as `benchmarks/estimate.py --fit` measures it: all numbers are here.

SECONDS are of one thread of the processor, for one unit of each term (`Work.terms`); PARALLEL is the share of a stage
that threads divide among them; MEMORY is bytes for one unit of each term (`Work.memory_terms`).
"""

__all__ = ["MEMORY", "PARALLEL", "SECONDS"]

SECONDS = {
    "start-up": {"once": 2.426},
    "read": {"spots": 0.0, "packed": 6.4e-11, "bytes": 4.43e-09},
    "genes": {"once": 0.225, "values": 1.83e-08, "kept": 0.0, "genes": 2.08e-05, "packed": 6.4e-11, "bytes": 4.43e-09},
    "PCA": {"once": 0.559, "kept": 3.15e-08, "spots": 2.45e-06},
    "smooth": {"once": 0.0114, "asked": 0.0, "neighbours": 4.07e-07},
    "start": {"once": 0.235, "learnt": 3.14e-08, "labelled": 2.15e-09, "votes": 0.0},
    "graph": {"once": 0.00807, "neighbours": 2.06e-07},
    "fit": {"once": 0.0462, "updates": 3.86e-09},
    "scores": {"once": 0.0206, "spots": 7.88e-06, "learnt": 3.27e-08},
    "markers": {"once": 0.0163, "values": 6.25e-09, "sums": 3.73e-07, "packed": 6.4e-11, "bytes": 4.43e-09},
    "write": {"once": 0.0798, "posteriors": 0.0, "file": 1.71e-09},
}
PARALLEL = {
    "start-up": 0.14,
    "read": 0.46,
    "genes": 0.54,
    "PCA": 0.02,
    "smooth": 1.0,
    "start": 0.04,
    "graph": 0.95,
    "fit": 0.76,
    "scores": 0.07,
    "markers": 1.0,
    "write": 0.08,
}
MEMORY = {
    "start-up": {"once": 250000000.0},
    "read": {"once": 248000000.0, "spots": 811.0, "held": 1.0},
    "genes": {"once": 287000000.0, "spots": 1470.0, "held": 1.0, "kept": 0.0, "genes": 6590.0},
    "PCA": {"once": 347000000.0, "spots": 1210.0, "held": 1.0, "kept": 0.445},
    "smooth": {"once": 311000000.0, "spots": 3220.0, "held": 1.0},
    "start": {"once": 312000000.0, "spots": 2100.0, "held": 1.0},
    "graph": {"once": 336000000.0, "spots": 5630.0, "held": 1.0},
    "fit": {"once": 343000000.0, "spots": 0.0, "posteriors": 102.0, "held": 1.0},
    "scores": {"once": 343000000.0, "spots": 480.0, "posteriors": 98.6, "held": 1.0},
    "write": {"once": 345000000.0, "spots": 0.0, "posteriors": 116.0, "held": 1.0},
    "markers": {"once": 355000000.0, "spots": 1450.0, "posteriors": 0.0, "held": 1.0, "sums": 139.0},
}
