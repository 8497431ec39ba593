"""What the stages of a fit cost, as `benchmarks/estimate.py --fit` measures it: all numbers are here.

SECONDS are of one thread of the processor, for one unit of each term (`Work.terms`); PARALLEL is the share of a stage
that threads divide among them; MEMORY is bytes for one unit of each term (`Work.memory_terms`).
"""

__all__ = ["MEMORY", "PARALLEL", "SECONDS"]

SECONDS = {
    "start-up": {"once": 1.897},
    "read": {"spots": 6.54e-06, "packed": 2.73e-09, "bytes": 3.2e-09},
    "genes": {"once": 0.162, "values": 1.98e-08, "kept": 0.0, "genes": 2.42e-05, "packed": 2.73e-09, "bytes": 3.2e-09},
    "PCA": {"once": 0.434, "kept": 4.41e-08, "spots": 0.0},
    "smooth": {"once": 0.00917, "asked": 0.0, "neighbours": 3.54e-07},
    "start": {"once": 0.345, "learnt": 2.16e-08, "labelled": 0.0, "votes": 0.0},
    "graph": {"once": 0.0162, "neighbours": 1.5e-07},
    "fit": {"once": 0.0273, "updates": 1.18e-09},
    "scores": {"once": 0.0153, "spots": 7.56e-06, "learnt": 2.39e-08},
    "markers": {"once": 0.0125, "values": 5.32e-09, "sums": 4.84e-07, "packed": 2.73e-09, "bytes": 3.2e-09},
    "write": {"once": 0.0495, "posteriors": 6.39e-08, "file": 3.37e-09},
}
PARALLEL = {
    "start-up": 0.07,
    "read": 0.56,
    "genes": 0.66,
    "PCA": 0.06,
    "smooth": 1.0,
    "start": 1.0,
    "graph": 1.0,
    "fit": 0.51,
    "scores": 0.03,
    "markers": 0.76,
    "write": 0.01,
}
MEMORY = {
    "start-up": {"once": 250000000.0},
    "read": {"once": 246000000.0, "spots": 847.0, "held": 1.0},
    "genes": {"once": 286000000.0, "spots": 1500.0, "held": 1.0, "kept": 0.0, "genes": 6480.0},
    "PCA": {"once": 346000000.0, "spots": 1290.0, "held": 1.0, "kept": 0.435},
    "smooth": {"once": 324000000.0, "spots": 2740.0, "held": 1.0},
    "start": {"once": 338000000.0, "spots": 2560.0, "held": 1.0},
    "graph": {"once": 338000000.0, "spots": 5050.0, "held": 1.0},
    "fit": {"once": 345000000.0, "spots": 0.0, "posteriors": 163.0, "held": 1.0},
    "scores": {"once": 347000000.0, "spots": 37.9, "posteriors": 179.0, "held": 1.0},
    "write": {"once": 348000000.0, "spots": 0.0, "posteriors": 172.0, "held": 1.0},
    "markers": {"once": 354000000.0, "spots": 1200.0, "posteriors": 54.0, "held": 1.0, "sums": 250.0},
}
