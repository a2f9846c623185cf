"""What `bench_train.py` and `bench_decode.py` measure with; no part of the package, which neither needs nor ships it.

operations     floating-point operations of a pair, by formula, a function a model family
measuring      medians with spread, alternation, the matrix-product peak, memory
parts          where a training step spends its time
training       a configuration to be trained, on the Trainer's own step
step_by_step   the recurrent models written plainly, to be compared with
decoding       a run to be translated with
reporting      tables, JSON, and the command line's mistakes
"""
