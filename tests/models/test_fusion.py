import pytest
import torch
from torch.testing import assert_close

from reference import fusion as reference
from slimreid.errors import ConfigError
from slimreid.models.fusion import HDM, ATMoE
from slimreid.models.heads import BNNeckHead, GlobalLocal, fill_absent, join_blocks


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
    g, p = torch.randn(4, 6).double(), torch.randn(4, 5, 6).double()
    n, r = module.norm, module.reduce
    assert_close(module(g, p), reference.global_local(g, p, n.weight, n.bias, r.weight, r.bias))


@pytest.mark.parametrize("names", [("rgb",), ("rgb", "tir"), ("rgb", "nir", "tir")])
def test_hdm_is_the_plain_loop_with_and_without_absent_modalities(names):
    hdm = randomise(HDM(128, names))
    M = len(names)
    assert len(hdm.subsets) == 2**M - 1
    tokens = torch.randn(5, M, 3, 128).double()
    everything = torch.ones(5, M, dtype=torch.bool)
    assert_close(hdm(tokens), reference.hdm(tokens, everything, hdm))
    present = everything.clone()
    present[1, 1:] = False
    present[2, : M - 1] = False
    tokens[~present] = float("nan")  # what is absent must not be looked at
    tokens = tokens.nan_to_num(1e6)
    out = hdm(tokens, present)
    assert_close(out, reference.hdm(tokens, present, hdm))
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
