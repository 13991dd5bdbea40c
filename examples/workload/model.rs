use phasescope::report::ModelConfig;
use tch::nn::{self, Module, Path};
use tch::{IndexOp, Kind, Tensor};

use super::args::Preset;

const VOCABULARY: i64 = 4096;
const CLASSES: i64 = 16;

/// The dimensions of a preset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dimensions {
    pub(crate) layers: i64,
    pub(crate) hidden: i64,
    pub(crate) heads: i64,
    pub(crate) feedforward: i64,
    pub(crate) sequence: i64,
}

impl Dimensions {
    pub(crate) fn of(preset: Preset) -> Self {
        match preset {
            Preset::Small => {
                Self { layers: 4, hidden: 384, heads: 6, feedforward: 1536, sequence: 256 }
            }
            Preset::Medium => {
                Self { layers: 8, hidden: 512, heads: 8, feedforward: 2048, sequence: 512 }
            }
        }
    }

    pub(crate) fn config(self) -> ModelConfig {
        let number = |value: i64| u64::try_from(value).ok();
        ModelConfig {
            layers: number(self.layers),
            hidden_size: number(self.hidden),
            attention_heads: number(self.heads),
            feedforward_size: number(self.feedforward),
            sequence_length: number(self.sequence),
            vocabulary_size: number(VOCABULARY),
            classes: number(CLASSES),
        }
    }

    /// A batch of random tokens and labels. The seed is set by the caller.
    pub(crate) fn batch(self, samples: i64, device: tch::Device) -> (Tensor, Tensor) {
        let tokens = Tensor::randint(VOCABULARY, [samples, self.sequence], (Kind::Int64, device));
        let labels = Tensor::randint(CLASSES, [samples], (Kind::Int64, device));
        (tokens, labels)
    }
}

/// A transformer that classifies a sequence by its first token.
#[derive(Debug)]
pub(crate) struct Transformer {
    tokens: nn::Embedding,
    positions: Tensor,
    blocks: Vec<Block>,
    norm: nn::LayerNorm,
    head: nn::Linear,
}

impl Transformer {
    pub(crate) fn new(root: &Path<'_>, size: Dimensions) -> Self {
        Self {
            tokens: nn::embedding(root / "tokens", VOCABULARY, size.hidden, Default::default()),
            positions: root.randn("positions", &[size.sequence, size.hidden], 0.0, 0.02),
            blocks: (0..size.layers)
                .map(|place| Block::new(&(root / format!("block{place}")), size))
                .collect(),
            norm: nn::layer_norm(root / "norm", vec![size.hidden], Default::default()),
            head: linear(&(root / "head"), size.hidden, CLASSES),
        }
    }

    /// Logits, [samples, classes], of tokens, [samples, sequence].
    pub(crate) fn forward(&self, tokens: &Tensor) -> Tensor {
        let embedded = self.tokens.forward(tokens) + &self.positions;
        let hidden = self.blocks.iter().fold(embedded, |hidden, block| block.forward(&hidden));
        self.head.forward(&self.norm.forward(&hidden.i((.., 0))))
    }
}

/// A pre-norm block: attention, then feed-forward, each beside a residual path.
#[derive(Debug)]
struct Block {
    heads: i64,
    attention_norm: nn::LayerNorm,
    query_key_value: nn::Linear,
    attention_out: nn::Linear,
    feedforward_norm: nn::LayerNorm,
    feedforward_in: nn::Linear,
    feedforward_out: nn::Linear,
}

impl Block {
    fn new(path: &Path<'_>, size: Dimensions) -> Self {
        let norm = |name: &str| nn::layer_norm(path / name, vec![size.hidden], Default::default());
        Self {
            heads: size.heads,
            attention_norm: norm("attention_norm"),
            query_key_value: linear(&(path / "query_key_value"), size.hidden, 3 * size.hidden),
            attention_out: linear(&(path / "attention_out"), size.hidden, size.hidden),
            feedforward_norm: norm("feedforward_norm"),
            feedforward_in: linear(&(path / "feedforward_in"), size.hidden, size.feedforward),
            feedforward_out: linear(&(path / "feedforward_out"), size.feedforward, size.hidden),
        }
    }

    fn forward(&self, hidden: &Tensor) -> Tensor {
        let hidden = hidden + self.attention(&self.attention_norm.forward(hidden));
        let wide = self.feedforward_in.forward(&self.feedforward_norm.forward(&hidden));
        let narrow = self.feedforward_out.forward(&wide.gelu("tanh"));
        hidden + narrow
    }

    /// As PyTorch's `MultiheadAttention` does it, sequence first inside, so that the same tensors
    /// are kept for backward.
    fn attention(&self, hidden: &Tensor) -> Tensor {
        let (samples, sequence, width) =
            hidden.size3().expect("hidden states have three dimensions");
        let projected = self
            .query_key_value
            .forward(&hidden.transpose(0, 1))
            .view([sequence, samples, 3, width])
            .permute([2, 0, 1, 3])
            .contiguous();
        let head = |place: i64| {
            projected
                .i(place)
                .view([sequence, samples * self.heads, width / self.heads])
                .transpose(0, 1)
                .view([samples, self.heads, sequence, width / self.heads])
        };
        let attended = Tensor::scaled_dot_product_attention::<Tensor>(
            &head(0),
            &head(1),
            &head(2),
            None,
            0.0,
            false,
            None,
            false,
        );
        let merged = attended.permute([2, 0, 1, 3]).contiguous().view([sequence * samples, width]);
        self.attention_out.forward(&merged).view([sequence, samples, width]).transpose(0, 1)
    }
}

/// A linear layer without bias.
fn linear(path: &Path<'_>, from: i64, to: i64) -> nn::Linear {
    nn::linear(path, from, to, nn::LinearConfig { bias: false, ..Default::default() })
}
