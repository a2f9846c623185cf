"""Every key of a run, typed and explained in one place.

The dataclasses below are the schemas that Hydra checks the YAML files and the command-line overrides against. Each
key carries its meaning, which `nmt train --help` prints, and where it is not a free value also what it allows, which
`nmt.configuration` enforces. Nothing here reads a file or knows a model: it is the vocabulary that the rest shares.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from nmt.data.schema import DataConfig as DataConfig
from nmt.data.schema import Download as Download
from nmt.data.schema import FilePair as FilePair
from nmt.data.schema import FilesData as FilesData
from nmt.data.schema import FilterConfig as FilterConfig
from nmt.data.schema import GrammarData as GrammarData
from nmt.data.schema import HubData as HubData
from nmt.data.schema import MixedText as MixedText
from nmt.errors import RequestError
from nmt.keys import key as key

# Models ----------------------------------------------------------------------------------------------------------


@dataclass
class ModelConfig:
    """What every model family has."""

    family: str = key(
        "???",
        "which model this is",
        choices=("lstm", "cho", "bahdanau", "luong", "intra_attention", "transformer", "decoder_only"),
    )
    name: str = key("???", "name of the preset, used in the names of run directories")
    dropout: float = key(0.2, "share of activations set to zero in training", at_least=0, below=1)
    tie_embeddings: bool = key(True, "source, target and output embeddings are one matrix (needs a joint tokenizer)")

    tied_widths: ClassVar[tuple[str, str]] = ("embedding_size", "hidden_size")
    """The keys that must be equal where the matrix is one: widths of an embedding and of what the projection reads."""


@dataclass
class LstmConfig(ModelConfig):
    """Sutskever et al. 2014: a deep LSTM reads the sentence into its final states, another one writes from them."""

    cell: str = key("lstm", "recurrent unit; a plain rnn shows the vanishing gradient", choices=("lstm", "gru", "rnn"))
    embedding_size: int = key(256, "width of an embedding", at_least=1)
    hidden_size: int = key(256, "width of a layer's state", at_least=1)
    layers: int = key(2, "layers of encoder and of decoder", at_least=1)
    reverse_source: bool = key(True, "the encoder reads the source from its last word to its first")


@dataclass
class ChoConfig(ModelConfig):
    """Cho et al. 2014: a gated unit reads the sentence into one vector, which enters every step and maxout readout."""

    tied_widths: ClassVar[tuple[str, str]] = ("embedding_size", "readout_size")

    embedding_size: int = key(256, "width of an embedding", at_least=1)
    hidden_size: int = key(256, "width of encoder and decoder state", at_least=1)
    readout_size: int = key(256, "width of the maxout readout, after the maximum over pairs", at_least=1)


@dataclass
class BahdanauConfig(ModelConfig):
    """Bahdanau et al. 2014: bidirectional GRU encoder, additive attention, gated decoder with maxout readout."""

    tied_widths: ClassVar[tuple[str, str]] = ("embedding_size", "readout_size")

    embedding_size: int = key(256, "width of an embedding", at_least=1)
    hidden_size: int = key(256, "width of the decoder state and of either direction of the encoder", at_least=1)
    attention_size: int = key(256, "width of the additive score's hidden layer", at_least=1)
    readout_size: int = key(256, "width of the maxout readout, after the maximum over pairs", at_least=1)


@dataclass
class LuongConfig(ModelConfig):
    """Luong et al. 2015: stacked LSTMs, global or local attention by any score, attentional vector, input feeding."""

    embedding_size: int = key(256, "width of an embedding", at_least=1)
    hidden_size: int = key(256, "width of a layer's state", at_least=1)
    layers: int = key(2, "layers of encoder and of decoder", at_least=1)
    reverse_source: bool = key(False, "the encoder reads the source from its last word to its first")
    cell: str = key("lstm", "recurrent unit", choices=("lstm", "gru", "rnn"))
    score: str = key(
        "general",
        "how a decoder state and a source state are compared; location looks at the position alone",
        choices=("dot", "general", "concat", "location"),
    )
    location_positions: int = key(256, "score=location: source positions that have a score", at_least=1)
    window: str = key(
        "global",
        "source positions that are seen: all, those around the target position, or those around a predicted one",
        choices=("global", "local_m", "local_p"),
    )
    window_size: int = key(10, "window=local_m, local_p: positions to either side of the centre", at_least=1)
    input_feeding: bool = key(True, "the attentional vector of one step enters the next step's input")


@dataclass
class IntraAttentionConfig(ModelConfig):
    """Cheng et al. 2016: LSTMs whose memory is a tape of all past states, attended to in every step; deep fusion."""

    embedding_size: int = key(256, "width of an embedding", at_least=1)
    hidden_size: int = key(256, "width of a state", at_least=1)
    attention_size: int = key(256, "width of the additive scores' hidden layers", at_least=1)


@dataclass
class BlockConfig(ModelConfig):
    """What the layers of every Transformer are made of."""

    tied_widths: ClassVar[tuple[str, str]] = ("width", "width")

    width: int = key(128, "width of the residual stream (d_model)", at_least=1)
    feed_forward_size: int = key(256, "width of the feed-forward layers (d_ff)", at_least=1)
    heads: int = key(4, "attention heads; divides width", at_least=1)
    kv_heads: int | None = key(
        None,
        "heads of keys and values, each shared by a group of query heads; 1: multi-query; null: as many as heads",
        at_least=1,
    )
    norm: str = key("post", "norm after the residual addition, as published, or before", choices=("post", "pre"))
    normalization: str = key("layer", "LayerNorm, or RMSNorm, which does not centre", choices=("layer", "rms"))
    activation: str = key("relu", "of the feed-forward layers; swiglu is gated", choices=("relu", "gelu", "swiglu"))
    positions: str = key("sinusoidal", "how order is told", choices=("sinusoidal", "learned", "rotary", "none"))
    max_positions: int = key(
        1_024, "positions=learned: size of the table; later positions share its last entry", at_least=1
    )
    attention_dropout: float = key(0.0, "share of attention weights set to zero in training", at_least=0, below=1)
    feed_forward_dropout: float | None = key(
        None,
        "share of the feed-forward layers' inner activations set to zero in training; null: as dropout; published: 0",
        at_least=0,
        below=1,
    )
    alignment_layer: int = key(-1, "layer of the decoder whose attention is shown; -1 is the last")
    alignment_head: int | None = key(None, "head whose attention is shown; null: their mean", at_least=0)


@dataclass
class TransformerConfig(BlockConfig):
    """Vaswani et al. 2017."""

    encoder_layers: int = key(4, "encoder layers", at_least=1)
    decoder_layers: int = key(4, "decoder layers", at_least=1)
    attention_kernel: str = key(
        "fused",
        "how training computes attention: padded batches, or batches without their padding, by one mask over all "
        "(plain, the reference), FlexAttention (GPUs) or FlashAttention's for different lengths (GPUs, bfloat16)",
        choices=("fused", "plain", "flex", "varlen"),
    )


@dataclass
class DecoderOnlyConfig(BlockConfig):
    """One sequence over one vocabulary: source, the marker that asks for French, target."""

    layers: int = key(6, "layers", at_least=1)


@dataclass
class TokenizerConfig:
    """SentencePiece."""

    model: str = key("unigram", "segmentation algorithm", choices=("unigram", "bpe"))
    joint: bool = key(True, "one vocabulary for both languages")
    vocab_size: int = key(
        4_000, "pieces of a vocabulary; shrinks to what the corpus can fill", at_least=16, at_most=1_000_000
    )
    sample: int = key(
        500_000, "most sentences (of either language) that the tokenizer is trained on; 2 kB of memory each", at_least=1
    )
    character_coverage: float = key(1.0, "share of characters covered by the vocabulary", above=0, at_most=1)
    normalization: str = key("nmt_nfkc", "SentencePiece's text normalisation", choices=("nmt_nfkc", "nfkc", "identity"))
    byte_fallback: bool = key(False, "unknown characters become their UTF-8 bytes instead of the unknown piece")
    user_defined_symbols: list[str] = key(list, "strings that are always one piece, such as placeholders")
    sampling: bool = key(False, "draw a new segmentation of each training sentence in each epoch")
    sampling_alpha: float = key(
        0.1, "unigram: smoothing of the draw; bpe: probability of skipping a merge", above=0, at_most=1
    )


@dataclass
class BatchConfig:
    """How sentences are grouped."""

    tokens: int | str = key(
        1_500,
        "most tokens of a batch, padding included, on the longer side; auto: as many as memory allows and make a "
        "hundred batches an epoch, found before the first step and kept with the run",
        at_least=1,
        word="auto",
    )
    memory_mb: int | None = key(
        None,
        "tokens=auto: most megabytes of tensors; null: two fifths of a machine's memory, nine tenths of a GPU's",
        at_least=1,
    )
    accumulate: int = key(1, "batches whose gradients are summed in one optimizer step", at_least=1)

    @property
    def budget(self) -> int:
        """`tokens` as a number. Raises RequestError for auto, which only `nmt train` makes a number of."""
        if isinstance(self.tokens, str):
            raise RequestError(f"batch.tokens={self.tokens}: is found by nmt train; give a number here")
        return self.tokens


# Training --------------------------------------------------------------------------------------------------------


@dataclass
class LossConfig:
    """Label-smoothed cross-entropy, normalised by the number of target tokens of the whole step."""

    label_smoothing: float = key(0.1, "probability mass spread over the vocabulary", at_least=0, below=1)


@dataclass
class OptimizerConfig:
    """The optimizer and its peak learning rate."""

    name: str = key("adam", "update rule", choices=("adam", "adamw", "sgd", "adadelta"))
    lr: float = key(3e-3, "peak learning rate", above=0)
    beta1: float = key(0.9, "Adam: decay of the gradient's mean", at_least=0, below=1)
    beta2: float = key(0.98, "Adam: decay of the squared gradient's mean", at_least=0, below=1)
    epsilon: float = key(1e-9, "Adam, Adadelta: added to the denominator", above=0)
    rho: float = key(0.95, "Adadelta: decay of the running means", at_least=0, below=1)
    momentum: float = key(0.0, "SGD: momentum", at_least=0, below=1)
    weight_decay: float = key(0.0, "weight decay; decoupled for adamw", at_least=0)


@dataclass
class ScheduleConfig:
    """The learning rate as a share of its peak, a function of the step alone."""

    name: str = key(
        "inverse_sqrt", "shape after the warm-up", choices=("constant", "inverse_sqrt", "linear", "cosine", "halving")
    )
    warmup: int = key(600, "steps over which the rate rises linearly to its peak", at_least=0)
    total: int | None = key(
        None, "linear, cosine: step at which the floor is reached; null: trainer.max_steps", at_least=1
    )
    floor: float = key(0.0, "linear, cosine: last share of the peak", at_least=0, at_most=1)
    start: int = key(10_000, "halving: step after which the rate is halved", at_least=0)
    interval: int = key(1_000, "halving: steps between halvings", at_least=1)


# The budget of a run that is given none, and the widest beam.
DEFAULT_EPOCHS = 10
MOST_HYPOTHESES = 1_000


@dataclass
class TrainerConfig:
    """Budget, precision, averaging, checkpoints. Training ends with the first budget that is used up."""

    seed: int = key(1, "seed of initial weights, batch order and dropout", at_least=0)
    max_steps: int | None = key(None, "budget in optimizer steps; null: no limit", at_least=1)
    max_epochs: int | None = key(
        None,
        f"budget in passes over the training pairs; null: no limit, or {DEFAULT_EPOCHS} where no other budget is given",
        at_least=1,
    )
    max_minutes: float | None = key(
        None, "budget in minutes, validation and resumed time included; null: no limit", above=0
    )
    patience: int | None = key(
        None, "validations without a better BLEU after which training stops; null: never", at_least=1
    )
    device: str = key("auto", "auto takes a GPU where there is one", choices=("auto", "cpu", "cuda"))
    precision: str = key(
        "auto",
        "auto is bfloat16 on a GPU that computes with it, float32 elsewhere; bfloat16 also speeds up a CPU that has it",
        choices=("auto", "float32", "bfloat16"),
    )
    sharding: str = key(
        "none",
        "several processes (torchrun): each keeps all of weights, averages and optimizer state, or its share of them",
        choices=("none", "full"),
    )
    compile: bool = key(
        False,
        "compile each layer of a Transformer for training: needs a C++ compiler (CPU) or Triton (GPU), takes a while "
        "before the first steps, and gives the same numbers but for rounding and for the draws of dropout",
    )
    threads: int | None = key(None, "CPU threads; null: PyTorch's choice", at_least=1, at_most=1024)
    clip_norm: float | None = key(1.0, "greatest gradient norm; null: no clipping", above=0)
    ema_decay: float = key(
        0.999, "decay of the moving average of the weights that is validated and saved; 0: none", at_least=0, below=1
    )
    log_every: int = key(50, "steps between lines of training metrics", at_least=1)
    save_every: int = key(1_000, "steps between checkpoints; one is also saved at each validation", at_least=1)
    keep_last: int = key(2, "latest checkpoints that are kept, besides the best one", at_least=1)
    max_skipped_steps: int = key(10, "steps in a row with a non-finite gradient after which training stops", at_least=1)


@dataclass
class ValidationConfig:
    """Validation translates for real."""

    every: int = key(500, "steps between validations", at_least=1)
    sentences: int | None = key(None, "validate on the first sentences only; null: all", at_least=1)
    beam_size: int = key(1, "hypotheses kept; 1 is greedy search", at_least=1, at_most=MOST_HYPOTHESES)
    samples: int = key(3, "translations logged at each validation", at_least=0)


@dataclass
class SearchConfig:
    """How the test sets are translated, and the defaults of `nmt translate`."""

    beam_size: int = key(5, "hypotheses kept; 1 is greedy search", at_least=1, at_most=MOST_HYPOTHESES)
    n_best: int = key(1, "hypotheses returned; at most beam_size, or mbr_samples", at_least=1)
    length_penalty: str = key(
        "average",
        "what a log-probability is divided by: nothing, length^alpha, or ((5 + length) / 6)^alpha",
        choices=("none", "average", "gnmt"),
    )
    length_alpha: float = key(1.0, "exponent of the length penalty", at_least=0, at_most=10)
    min_length: int = key(1, "fewest pieces before the end mark", at_least=0, at_most=1000)
    max_length_ratio: float = key(2.0, "most target pieces: ratio × source pieces + extra", at_least=0, at_most=1000)
    max_length_extra: int = key(20, "see max_length_ratio", at_least=1)
    sampling: bool = key(False, "draw from the model instead of searching")
    temperature: float = key(1.0, "sampling: divides the logits", above=0)
    top_k: int = key(0, "sampling: only the k likeliest pieces; 0: all", at_least=0)
    epsilon: float = key(
        0.0,
        "sampling: only pieces to which the model gives at least this probability, and the likeliest; 0: all",
        at_least=0,
        below=1,
    )
    seed: int = key(1, "sampling: seed", at_least=0)
    mbr_samples: int = key(
        0,
        "minimum Bayes risk: draw so many translations, choose the one most like all of them by chrF; 0: do not",
        at_least=0,
        at_most=MOST_HYPOTHESES,
    )
    mbr_beam: bool = key(False, "mbr_samples: what a beam search finds may be chosen as well")
    batch_tokens: int = key(4_096, "most source tokens of a batch, times hypotheses", at_least=1)

    @property
    def chance(self) -> str:
        """The setting by which results depend on `seed` and the line's number; empty where a search finds them."""
        if self.mbr_samples:
            return f"search.mbr_samples={self.mbr_samples}"
        return "search.sampling=true" if self.sampling else ""

    def without_chance(self) -> SearchConfig:
        """The same as a beam search."""
        return replace(self, sampling=False, mbr_samples=0, mbr_beam=False)

    def for_results(self, count: int) -> SearchConfig:
        """The same for so many results, with more hypotheses or candidates where it takes more."""
        if self.mbr_samples:
            return replace(self, n_best=count, mbr_samples=max(self.mbr_samples, count))
        return replace(self, n_best=count, beam_size=max(self.beam_size, count))


@dataclass
class RunConfig:
    """Where the run is kept."""

    dir: str = key(
        "runs/${model.name}-${data.name}-${now:%Y%m%d-%H%M%S}",
        "run directory; one that holds a checkpoint is continued; in a sweep the default has a hash of all other keys "
        "in place of the time",
    )
    notes: str = key("", "free text that is kept with the results")
    report: bool = key(True, "write a model card, README.md, and a page, report.html, beside the scores")


@dataclass
class TrainConfig:
    """One run."""

    model: ModelConfig = key("???", "the architecture")
    data: DataConfig = key("???", "the corpus")
    tokenizer: TokenizerConfig = key(TokenizerConfig)
    batch: BatchConfig = key(BatchConfig)
    loss: LossConfig = key(LossConfig)
    optimizer: OptimizerConfig = key(OptimizerConfig)
    schedule: ScheduleConfig = key(ScheduleConfig)
    trainer: TrainerConfig = key(TrainerConfig)
    validation: ValidationConfig = key(ValidationConfig)
    search: SearchConfig = key(SearchConfig)
    run: RunConfig = key(RunConfig)
    init_from: str | None = key(
        None, "fine-tuning: a run or checkpoint directory whose weights and tokenizer training begins with; null: none"
    )
