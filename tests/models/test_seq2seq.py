"""Encoder–decoder transformer: teacher forcing, greedy decoding, padding, positions, saving and bad input."""

import numpy as np
import pandas as pd
import pytest
import torch
from support.helpers import distance

import fillin
from fillin.data.sequences import END, PADDING, START, Dates, SequenceBatch
from fillin.errors import FillinError, InputError, InputTypeError
from fillin.models import Seq2Seq, load
from fillin.models.seq2seq import POSITIONS
from fillin.objectives import teacher_forcing

VARIANTS = [(positions, norm) for positions in POSITIONS for norm in ("pre", "post")]
TINY = {"width": 16, "heads": 2, "layers": 2, "hidden": 24, "clip": 2, "max_length": 12}


def model(positions: str = "sinusoid", norm: str = "pre", dtype=torch.float64, **options) -> Seq2Seq:
    """Model of 6 source and 4 target symbols, with weights large enough that every term matters."""
    network = fillin.create("seq2seq", 6, 4, **{**TINY, "positions": positions, "norm": norm, **options}).to(dtype)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return network


def tokens(b: int, n: int, symbols: int) -> torch.Tensor:
    return torch.randint(3, 3 + symbols, (b, n))


def targets(b: int, n: int) -> torch.Tensor:
    """Decoder inputs: the start token and symbols."""
    return torch.cat([torch.full((b, 1), START), tokens(b, n - 1, 4)], 1)


@pytest.mark.parametrize(("positions", "norm"), VARIANTS)
def test_teacher_forcing_equals_decoding_step_by_step(positions, norm):
    """Logits of all tokens at once are those of each prefix, encoded anew, and those with kept keys and values."""
    network, source, target = model(positions, norm), tokens(3, 5, 6), targets(3, 6)
    source[1, 3:] = PADDING
    logits = network(source, target)
    memory, mask = network.encode(source)
    state = network.decoder.start(memory, mask)
    for i in range(6):
        assert distance(network(source, target[:, : i + 1])[:, -1], logits[:, i]) < 1e-12
        step, state = network.step(target[:, i : i + 1], i, state)
        assert distance(step, logits[:, i]) < 1e-12


@pytest.mark.parametrize(("positions", "norm"), VARIANTS)
def test_no_token_sees_the_future(positions, norm):
    """In value and in gradient: a later token changes no logit, and gets no gradient from earlier ones."""
    network, source, target = model(positions, norm), tokens(2, 5, 6), targets(2, 6)
    other = target.clone()
    other[:, 3] = 3 + (other[:, 3] - 2) % 4
    same, changed = network(source, target), network(source, other)
    assert distance(same[:, :3], changed[:, :3]) < 1e-12
    assert distance(same[:, 3:], changed[:, 3:]) > 1e-3
    embedded = []
    network.embed_target.register_forward_hook(lambda module, inputs, out: embedded.append(out))
    (gradient,) = torch.autograd.grad(network(source, target)[:, 2].sum(), embedded)
    assert gradient[:, 3:].abs().max() == 0
    assert gradient[:, :3].abs().min(-1).values.max() > 0


@pytest.mark.parametrize(("positions", "norm"), VARIANTS)
def test_padding_never_changes_a_prediction(positions, norm):
    """Neither of the source, wherever it is, nor of the target, nor the other sequences of the batch."""
    network, source, target = model(positions, norm), tokens(1, 4, 6), targets(1, 5)
    expected, zero = network(source, target), torch.zeros(1, 1, dtype=torch.long)
    padded = [
        torch.cat(parts, 1)
        for parts in (
            (source, zero, zero), (zero, zero, source), (source[:, :2], zero, source[:, 2:], zero), (source, zero, zero)
        )
    ]  # fmt: skip
    length = max(p.shape[1] for p in padded)
    batch = torch.cat([torch.nn.functional.pad(p, (0, length - p.shape[1])) for p in (*padded, tokens(1, 6, 6))])
    out = network(batch, torch.nn.functional.pad(target, (0, 2)).expand(5, -1))
    assert all(distance(out[row, :5], expected[0]) < 1e-12 for row in range(4))
    assert distance(out[4, :5], expected[0]) > 1e-3
    decoded = network.greedy(batch)
    alone = network.greedy(source)
    assert torch.equal(decoded[:4, : alone.shape[1]], alone.expand(4, -1))
    gaps = torch.cat([target[:, :2], zero, target[:, 2:]], 1)
    assert distance(network(source, gaps)[:, [0, 1, 3, 4, 5]], expected) < 1e-12


@pytest.mark.parametrize("positions", POSITIONS)
def test_padding_gets_no_gradient(positions):
    network, source, target = model(positions), tokens(2, 5, 6), targets(2, 4)
    source[0, 3:], target[1, 2:] = PADDING, PADDING
    loss = teacher_forcing(network, SequenceBatch(source, torch.cat([target[:, 1:], target[:, :1] * 0], 1))).sum()
    loss.backward()
    for embedding in (network.embed_source, network.embed_target):
        assert embedding.weight.grad[PADDING].abs().max() == 0
    unused = [name for name, p in network.named_parameters() if p.grad is None or not p.grad.any()]
    assert unused == []


@pytest.mark.parametrize("positions", POSITIONS)
def test_greedy_decoding_equals_encoding_every_prefix_anew(positions):
    network, source = model(positions), tokens(4, 5, 6)
    decoded = network.greedy(source, 8)
    for row in range(4):
        written = torch.tensor([[START]])
        while written.shape[1] <= 8 and written[0, -1] != END:
            logits = network(source[row : row + 1], written)[0, -1]
            logits[[PADDING, START]] = -torch.inf
            written = torch.cat([written, logits.argmax()[None, None]], 1)
        expected = written[0, 1:]
        assert torch.equal(decoded[row, : len(expected)], expected)
        assert (decoded[row, len(expected) :] == PADDING).all()


def test_decoding_ends_at_the_end_token():
    """A bias decides when: never, at once, and never padding or start."""
    network, source = model(), tokens(3, 5, 6)
    with torch.no_grad():
        network.out.bias[END] = -100
        network.out.bias[[PADDING, START]] = 1000
    never = network.greedy(source, max_length=9)
    assert never.shape == (3, 9)
    assert (never > END).all()
    assert network.greedy(source).shape == (3, 12)  # the default is max_length of the model
    with torch.no_grad():
        network.out.bias[END] = 100
    assert network.greedy(source, max_length=9).tolist() == [[END]] * 3


def test_sequences_of_a_batch_end_separately():
    """Behind the end of a sequence there is padding, until the last has ended."""
    torch.manual_seed(3)
    network, source = model("relative"), tokens(200, 5, 6)
    with torch.no_grad():
        network.out.bias[END] += 0.5
    decoded = network.greedy(source)
    ends = (decoded == END).int()
    assert ((ends.cumsum(1) - ends > 0) == (decoded == PADDING)).all()
    assert len(ends.argmax(1)[ends.any(1)].unique()) > 1


@pytest.mark.parametrize("positions", POSITIONS)
def test_the_order_of_a_source_matters(positions):
    network, source, target = model(positions), tokens(1, 5, 6), targets(1, 3)
    source[0, :2] = torch.tensor([3, 4])
    assert distance(network(source[:, [1, 0, 2, 3, 4]], target), network(source, target)) > 1e-4


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_saved_model_is_loaded_unchanged(positions, tmp_path):
    network, source = model(positions, dtype=torch.float32).eval(), tokens(2, 5, 6)
    restored = load(fillin.save(network, tmp_path / "model"), Seq2Seq)
    assert restored.config == network.config
    target = targets(2, 4)
    assert torch.equal(restored(source, target), network(source, target))
    assert torch.equal(restored.greedy(source), network.greedy(source))
    with pytest.raises(FillinError, match="holds the model cnp, which is no Seq2Seq"):
        load(fillin.save(fillin.create("cnp", size="small"), tmp_path / "cnp"), Seq2Seq)


def test_dropout_is_off_while_decoding():
    network, source = model(dropout=0.5), tokens(4, 5, 6)
    network.train()
    assert torch.equal(network.greedy(source), network.greedy(source))
    assert network.training
    target = targets(4, 5)
    assert not torch.equal(network(source, target), network(source, target))


def test_attention_to_the_source_is_normalised_and_skips_padding():
    network, source = model(heads=2, layers=2), tokens(2, 5, 6)
    source[0, 3:] = PADDING
    layers = network.align(source, targets(2, 4))
    assert [tuple(weights.shape) for weights in layers] == [(2, 2, 4, 5)] * 2
    for weights in layers:
        assert distance(weights.sum(-1), torch.ones(2, 2, 4).double()) < 1e-12
        assert weights[0, ..., 3:].abs().max() == 0
        assert weights[1, ..., 3:].min() > 0


def test_the_objective_is_the_mean_log_probability_of_true_tokens():
    network, source = model(), tokens(2, 5, 6)
    target = torch.tensor([[4, 5, 6, END], [3, END, PADDING, PADDING]])
    batch = SequenceBatch(source, target)
    assert batch.decoder_input.tolist() == [[START, 4, 5, 6], [START, 3, END, PADDING]]
    log_prob = network(source, batch.decoder_input).log_softmax(-1)
    expected = torch.stack([
        torch.stack([log_prob[0, i, t] for i, t in enumerate([4, 5, 6, END])]).mean(),
        torch.stack([log_prob[1, i, t] for i, t in enumerate([3, END])]).mean(),
    ])  # fmt: skip
    assert distance(teacher_forcing(network, batch), expected) < 1e-12


def test_an_untrained_decoder_without_information_predicts_uniformly():
    """With a zero readout each of the tokens has probability 1/7."""
    network = model()
    torch.nn.init.zeros_(network.out.weight)
    torch.nn.init.zeros_(network.out.bias)
    batch = SequenceBatch(tokens(2, 5, 6), tokens(2, 4, 4))
    assert distance(teacher_forcing(network, batch), torch.full((2,), -torch.tensor(7.0).log()).double()) < 1e-6


def test_a_model_learns_to_reverse_words_of_any_length():
    """Teacher forcing on words of one to four letters, then exact greedy decoding with the end in the right place."""
    network = fillin.create("seq2seq", 6, 6, size="small", positions="relative", clip=4)
    adam = torch.optim.Adam(network.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(adam, max_lr=1e-2, total_steps=250)

    def draw(b: int) -> SequenceBatch:
        words = [torch.randint(3, 9, (int(length),)) for length in torch.randint(1, 5, (b,))]
        pad = torch.nn.utils.rnn.pad_sequence
        ends = [torch.cat([word.flip(0), torch.tensor([END])]) for word in words]
        return SequenceBatch(pad(words, batch_first=True), pad(ends, batch_first=True))

    for _ in range(250):
        loss = -teacher_forcing(network, draw(32)).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        schedule.step()
    batch = draw(100)
    decoded = network.greedy(batch.source, 5)
    padded = torch.nn.functional.pad(decoded, (0, 5 - decoded.shape[1]))[:, : batch.target.shape[1]]
    assert (padded == batch.target).all(1).float().mean() > 0.8
    assert (padded == batch.target)[batch.target > 0].float().mean() > 0.95


def test_empty_sources_and_batches():
    network = model()
    assert network(torch.zeros(2, 0, dtype=torch.long), targets(2, 3)).isfinite().all()
    padded, empty = torch.zeros(2, 3, dtype=torch.long), torch.zeros(2, 0, dtype=torch.long)
    target = targets(2, 3)
    assert distance(network(padded, target), network(empty, target)) < 1e-12
    assert network.greedy(torch.zeros(0, 3, dtype=torch.long)).shape[0] == 0


BAD = {
    "floats": (lambda m: m(torch.rand(1, 3), targets(1, 2)), InputTypeError, "got torch.float32; use source.long()"),
    "a list": (lambda m: m([[3]], targets(1, 2)), InputTypeError, "got list"),
    "one axis": (lambda m: m.greedy(torch.tensor([3])), InputError, r"must be \[b n\], got shape \(1,\)"),
    "batches": (lambda m: m(tokens(2, 3, 6), targets(3, 2)), InputError, "a batch of 2 sequences, target of 3"),
    "tokens": (lambda m: m(tokens(1, 3, 6) + 6, targets(1, 2)), InputError, "the model has 0 to 8: three special"),
    "negative": (lambda m: m.greedy(-tokens(1, 3, 6)), InputError, "three special tokens and 6 symbols"),
    "targets": (lambda m: m(tokens(1, 3, 6), targets(1, 2) + 9), InputError, "target has tokens from"),
    "length": (lambda m: m.greedy(tokens(1, 3, 6), 0), InputError, "a whole number of at least 1 and at most 12, for"),
    "long": (lambda m: m.greedy(tokens(1, 3, 6), 13), InputError, "for which the model has learned positions, got 13"),
    "source": (lambda m: m.greedy(tokens(1, 13, 6)), InputError, "the source has 13 tokens, but learned"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case, unchecked):
    call, kind, message = BAD[case]
    with pytest.raises(kind, match=message):
        call(model("learned"))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"positions": "learnt"}, "unknown positions 'learnt'; did you mean 'learned'"), ({"norm": "mid"}, "unknown norm"),
     ({"clip": 0}, "clip must be a whole number of at least 1"), ({"max_length": 2.5}, "max_length must be a whole"),
     ({"dropout": 1}, "dropout must be a number from 0 to below 1"), ({"widht": 8}, "did you mean 'width'"),
     ({"width": 15}, "width must be an even whole number")],
)  # fmt: skip
def test_bad_options(options, message):
    with pytest.raises(FillinError, match=message):
        fillin.create("seq2seq", 6, 4, **options)


def test_a_model_of_dates_fits_its_data():
    dates = Dates(batch=3)
    network = fillin.create("seq2seq", dates.dim_x, dates.dim_y, size="small")
    assert teacher_forcing(network, dates.task(0)).shape == (3,)


def test_tools_for_points_refuse_models_of_sequences(tmp_path):
    """Models that are no neural process are named as such, wherever a folder of a process is expected."""
    folder = fillin.save(fillin.create("seq2seq", 6, 4, size="small"), tmp_path / "seq2seq")
    series = pd.DataFrame({"t": range(6), "y": [1.0, None, 2.0, 3.0, 4.0, 5.0]})
    with pytest.raises(FillinError, match="is not a model that fills gaps"):
        fillin.fill(series, model=str(folder))
    with pytest.raises(FillinError, match="holds the model seq2seq, which is no Process"):
        fillin.export(folder, tmp_path / "model.onnx")
    with pytest.raises(FillinError, match="holds the model seq2seq, which is no Process"):
        fillin.ProcessRegressor(model=str(folder)).fit([[0.0], [1.0]], [0.0, 1.0])
    with pytest.raises(FillinError, match="is no neural process and predicts no pixels"):
        fillin.complete(np.full((8, 8), np.nan), model=str(folder))
