import pytest
import torch
from torch.testing import assert_close

from reference import fusion as reference
from slimreid.errors import ConfigError
from slimreid.models.fusion import HDM, ATMoE
from slimreid.models.heads import BNNeckHead, GlobalLocal, fill_absent, join_blocks
from slimreid.token_reduction.merge import mean_by_size


def randomise(module):
    torch.manual_seed(0)
    for parameter in module.parameters():
        parameter.data.normal_(std=0.3)
    for name, buffer in module.named_buffers():
        if "running" in name:
            buffer.uniform_(0.5, 1.5)
    return module.double().requires_grad_(False).eval()


def test_global_local_is_the_plain_formula():
    module = randomise(GlobalLocal(6))
    g, p = torch.randn(2, 4, 6).double()
    expected = [reference.global_local(*pair, module) for pair in zip(g, p, strict=True)]
    assert_close(module(g, p), torch.stack(expected))


@pytest.mark.parametrize("sizes", [False, True], ids=["alike", "sizes"])
@pytest.mark.parametrize("names", [("rgb",), ("rgb", "tir"), ("rgb", "nir", "tir")])
def test_hdm_is_the_plain_loop_with_and_without_absent_modalities(names, sizes):
    module = randomise(HDM(128, names))
    M = len(names)
    tokens = torch.randn(5, M, 3, 128).double()
    size = torch.randint(1, 9, (5, M, 3)).double() if sizes else None
    everything = torch.ones(5, M, dtype=torch.bool)
    assert_close(module(tokens, None, size), reference.hdm(tokens, everything, module, size))
    present = everything.clone()
    present[1, 1:] = False
    present[2, : M - 1] = False
    tokens[~present] = 1e6  # what is absent must not be looked at
    if sizes:
        size[~present] = 0
    out = module(tokens, present, size)
    assert_close(out, reference.hdm(tokens, present, module, size))
    assert (out[~present.all(1)] == 0).any() == (M > 1)


@pytest.mark.parametrize("given", [(0,), (1, 2), (0, 2), (0, 1, 2)])
def test_given_modalities_are_those_that_are_present(given):
    module = randomise(HDM(64, ("rgb", "nir", "tir")))
    tokens, size = torch.randn(4, 3, 5, 64).double(), torch.randint(1, 4, (4, 3, 5)).double()
    present = torch.tensor([m in given for m in range(3)]).expand(4, 3)
    assert_close(module(tokens, present, size, given=given), module(tokens, present, size))


def test_a_token_of_size_n_is_n_equal_tokens():
    module = randomise(HDM(64, ("rgb", "tir")))
    tokens, size = torch.randn(3, 2, 4, 64).double(), torch.tensor([1, 3, 2, 1])
    many = tokens.repeat_interleave(size, dim=2)
    assert_close(module(tokens, None, size.double().expand(3, 2, 4)), module(many))
    few = mean_by_size(tokens, size.double().expand(3, 2, 4))
    assert_close(few, many.mean(2))
    assert_close(few[1, 1], reference.mean_by_size(tokens[1, 1], size))


def test_subsets_are_there_when_a_member_is():
    hdm = randomise(HDM(64, ("rgb", "nir", "tir")))
    assert len(hdm.subsets) == 7
    present = torch.tensor([[1, 0, 0], [0, 1, 1], [1, 1, 1]]).bool()
    out = hdm(torch.randn(3, 3, 2, 64).double(), present)
    assert_close((out != 0).any(-1), hdm.subset_presence(present))


@pytest.mark.parametrize("heads", [1, 4])
def test_atmoe_is_the_plain_loop(heads):
    moe = randomise(ATMoE(8, 7, heads))
    features = torch.randn(3, 7, 8).double()
    assert_close(moe(features), reference.atmoe(features, moe))


def test_impossible_widths_are_refused():
    with pytest.raises(ConfigError, match="moe_heads 3"):
        ATMoE(8, 7, 3)
    with pytest.raises(ConfigError, match="do not divide"):
        HDM(131, ("rgb",))


def test_absent_blocks_become_the_mean_of_the_present():
    blocks = torch.randn(3, 4, 5)
    present = torch.tensor([[1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 1, 0]]).bool()
    filled = fill_absent(blocks, present)
    assert_close(filled[0], blocks[0])
    assert_close(filled[1, 0], (blocks[1, 1] + blocks[1, 3]) / 2)
    assert_close(filled[1, 1], blocks[1, 1])
    assert_close(filled[2], blocks[2, 2].expand(4, 5))
    joined = join_blocks(blocks, present, normalise=True)
    assert joined.shape == (3, 20)
    assert_close(joined[0].view(4, 5).norm(dim=-1), torch.ones(4))


def test_bnneck_bias_is_frozen_and_invalid_rows_do_not_count():
    head = BNNeckHead(6, 4)
    assert not head.neck.bias.requires_grad
    assert head.classifier.bias is None
    x = torch.randn(5, 6)
    valid = torch.tensor([True, False, True, True, False])
    normed, scores = head(x, valid)
    assert (normed[~valid] == 0).all()
    assert (scores[~valid] == 0).all()
    other = BNNeckHead(6, 4)
    other.load_state_dict(head.state_dict())
    head.neck.reset_running_stats()
    other.neck.reset_running_stats()
    for mine, expected in zip(head(x, valid), other(x[valid]), strict=True):
        assert_close(mine[valid], expected)
    assert_close(head.neck.running_mean, other.neck.running_mean)
