"""What the stages of a fit cost, as `benchmarks/estimate.py --fit` measures it: all numbers are here.

SECONDS are of one thread of the processor, for one unit of each term (`Work.terms`); PARALLEL is the share of a stage
that threads divide among them; MEMORY is bytes for one unit of each term (`Work.memory_terms`).
"""

__all__ = ["MEMORY", "PARALLEL", "SECONDS"]

SECONDS = {
    "start-up": {"once": 2.774},
    "read": {"spots": 2.27e-06, "packed": 7.43e-09, "bytes": 1.26e-09},
    "genes": {"once": 0.508, "values": 2.24e-08, "kept": 0.0, "genes": 1.35e-05, "packed": 7.43e-09, "bytes": 1.26e-09},
    "PCA": {"once": 0.623, "kept": 0.0, "spots": 1.23e-05},
    "smooth": {"once": 0.0302, "asked": 0.0, "neighbours": 3.56e-07},
    "start": {"once": 0.683, "learnt": 2.14e-08, "labelled": 0.0, "votes": 1.18e-08},
    "graph": {"once": 0.0398, "neighbours": 1.98e-07},
    "fit": {"once": 0.0723, "updates": 1.63e-09, "gene updates": 3.51e-09},
    "scores": {"once": 0.02, "spots": 7.32e-06, "learnt": 1.45e-08},
    "markers": {"once": 0.0244, "values": 5.76e-09, "sums": 9.96e-07, "packed": 7.43e-09, "bytes": 1.26e-09},
    "write": {"once": 0.065, "posteriors": 6.67e-08, "file": 4.92e-09},
}
PARALLEL = {
    "start-up": 0.06,
    "read": 1.0,
    "genes": 1.0,
    "PCA": 0.06,
    "smooth": 1.0,
    "start": 1.0,
    "graph": 1.0,
    "fit": 1.0,
    "scores": 0.02,
    "markers": 1.0,
    "write": 0.03,
}
MEMORY = {
    "start-up": {"once": 250000000.0},
    "read": {"once": 266000000.0, "spots": 275.0, "held": 1.0},
    "genes": {"once": 289000000.0, "spots": 1810.0, "held": 1.0, "kept": 0.0, "genes": 8160.0},
    "PCA": {"once": 362000000.0, "spots": 2230.0, "held": 1.0, "kept": 0.0},
    "smooth": {"once": 351000000.0, "spots": 1730.0, "held": 1.0, "fitted genes": 1.03},
    "start": {"once": 359000000.0, "spots": 1960.0, "held": 1.0, "fitted genes": 2.81},
    "graph": {"once": 367000000.0, "spots": 2900.0, "held": 1.0, "fitted genes": 1.31},
    "fit": {"once": 367000000.0, "spots": 0.0, "posteriors": 97.3, "held": 1.0, "fitted genes": 2.33},
    "scores": {"once": 368000000.0, "spots": 0.0, "posteriors": 117.0, "held": 1.0, "fitted genes": 2.28},
    "write": {"once": 370000000.0, "spots": 0.0, "posteriors": 115.0, "held": 1.0, "fitted genes": 2.28},
    "markers": {
        "once": 367000000.0,
        "spots": 1770.0,
        "posteriors": 0.0,
        "held": 1.0,
        "sums": 384.0,
        "fitted genes": 1.84,
    },
}
