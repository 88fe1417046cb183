"""The reader on hand-made HLO: loops, branches, fusions, groups and asynchronous collectives."""

import pytest

from scaling.compile.collectives import group_size, sent_bytes
from scaling.compile.cost import program_cost
from scaling.compile.hlo import Instruction, parse
from scaling.compile.rates import Rates
from scaling.compile.shapes import Array, arrays

LOOP = """HloModule loop

%inner_body (p: (s32[], f32[8,8])) -> (s32[], f32[8,8]) {
  %p = (s32[], f32[8,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[8,8]{1,0} get-tuple-element(%p), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %y = f32[8,8]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %out = (s32[], f32[8,8]{1,0}) tuple(%next, %y)
}

%inner_condition (p.1: (s32[], f32[8,8])) -> pred[] {
  %p.1 = (s32[], f32[8,8]{1,0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%p.1), index=0
  %limit = s32[] constant(5)
  ROOT %less = pred[] compare(%i.1, %limit), direction=LT
}

%body (q: (u32[], f32[8,8], u32[])) -> (u32[], f32[8,8], u32[]) {
  %q = (u32[], /*index=1*/f32[8,8]{1,0}, u32[]) parameter(0)
  %j = u32[] get-tuple-element(%q), index=0
  %step = u32[] get-tuple-element(%q), index=2
  %next.1 = u32[] add(%j, %step)
  %zero = s32[] constant(0)
  %tuple = (s32[], f32[8,8]{1,0}) tuple(%zero, %q#1)
  %while.1 = (s32[], f32[8,8]{1,0}) while(%tuple), condition=%inner_condition, body=%inner_body
  %z = f32[8,8]{1,0} get-tuple-element(%while.1), index=1
  ROOT %out.1 = (u32[], f32[8,8]{1,0}, u32[]) tuple(%next.1, %z, %step)
}

%fused_less (a: u32[]) -> pred[] {
  %a = u32[] parameter(0)
  %limit.1 = u32[] constant(7)
  ROOT %less.1 = pred[] compare(%limit.1, %a), direction=GT
}

%condition (q.1: (u32[], f32[8,8], u32[])) -> pred[] {
  %q.1 = (u32[], f32[8,8]{1,0}, u32[]) parameter(0)
  %j.1 = u32[] get-tuple-element(%q.1), index=0
  ROOT %wrapped = pred[] fusion(%j.1), kind=kLoop, calls=%fused_less
}

ENTRY %main (w: f32[8,8]) -> f32[8,8] {
  %w = f32[8,8]{1,0} parameter(0)
  %start = u32[] constant(1)
  %two = u32[] constant(2)
  %tuple.1 = (u32[], f32[8,8]{1,0}, u32[]) tuple(%start, %w, %two)
  %while.2 = (u32[], f32[8,8]{1,0}, u32[]) while(%tuple.1), condition=%condition, body=%body
  ROOT %result = f32[8,8]{1,0} get-tuple-element(%while.2), index=1
}
"""


def test_nested_loops_multiply_and_the_step_may_come_from_outside():
    cost = program_cost(parse(LOOP), 1)  # 1, 3, 5 are less than 7: three times five products
    assert cost.flops == 3 * 5 * 2 * 8**3
    assert cost.uncounted_loops == 0


def test_what_the_compiler_noted_wins():
    noted = 'body=%body, backend_config={"known_trip_count":{"n":"10"}}'
    assert program_cost(parse(LOOP.replace("body=%body", noted)), 1).flops == 10 * 5 * 2 * 8**3


def test_a_loop_that_cannot_be_counted_is_one_run_and_said():
    cost = program_cost(parse(LOOP.replace("%start = u32[] constant(1)",
                                           "%start = u32[] custom-call()")), 1)  # fmt: skip
    assert cost.flops == 5 * 2 * 8**3
    assert cost.uncounted_loops == 1


PARTS = """HloModule parts, num_partitions=4

%sum (a: bf16[], b: bf16[]) -> bf16[] {
  %a = bf16[] parameter(0)
  %b = bf16[] parameter(1)
  ROOT %c = bf16[] add(%a, %b)
}

%sliced (p0: f32[100,64], p1: s32[], p2: f32[10,64]) -> f32[100,64] {
  %p0 = f32[100,64]{1,0} parameter(0)
  %p1 = s32[] parameter(1)
  %p2 = f32[10,64]{1,0} parameter(2)
  %zero = s32[] constant(0)
  ROOT %update = f32[100,64]{1,0} dynamic-update-slice(%p0, %p2, %p1, %zero)
}

%cheap (c0: bf16[8,128]) -> bf16[8,128] {
  ROOT %c0 = bf16[8,128]{1,0} parameter(0)
}

%dear (d0: bf16[8,128]) -> bf16[8,128] {
  %d0 = bf16[8,128]{1,0} parameter(0)
  ROOT %neg = bf16[8,128]{1,0} negate(%d0)
}

%wrapped (w0: bf16[8,128]) -> bf16[2,128] {
  %w0 = bf16[8,128]{1,0} parameter(0)
  ROOT %rs = bf16[2,128]{1,0} reduce-scatter(%w0), replica_groups=[1,4]<=[4], to_apply=%sum
}

ENTRY %main (x: bf16[8,128], big: f32[100,64], part: f32[10,64], at: s32[]) -> f32[] {
  %x = bf16[8,128]{1,0:T(8,128)(2,1)} parameter(0)
  %big = f32[100,64]{1,0} parameter(1)
  %part = f32[10,64]{1,0} parameter(2)
  %at = s32[] parameter(3)
  %which = pred[] parameter(4)
  LINE
  ROOT %end = f32[] constant(0)
}
"""


def cost_of(line: str, **options):
    return program_cost(parse(PARTS.replace("LINE", line)), 4, **options)


X = 8 * 128 * 2
COLLECTIVES = {
    "%g = bf16[32,128]{1,0} all-gather(%x), replica_groups={}, dimensions={0}": 3 * X,
    "%g = bf16[32,128]{1,0} all-gather(bf16[8,128]{1,0} %x), replica_groups={{0,1,2,3}}": 3 * X,
    "%g = bf16[16,128]{1,0} all-gather(%x), replica_groups={{0,1},{2,3}}, dimensions={0}": X,
    "%r = bf16[8,128]{1,0} all-reduce(%x), replica_groups=[1,4]<=[4], to_apply=%sum": 1.5 * X,
    "%r = bf16[8,128]{1,0} all-reduce(%x), replica_groups=[2,2]<=[2,2]T(1,0), to_apply=%sum": X,
    "%r = bf16[8,128]{1,0} all-reduce(%x), replica_groups={{0},{1},{2},{3}}, to_apply=%sum": 0,
    "%r = bf16[8,128]{1,0} all-reduce(%x), replica_groups=mesh['a'=2,'b'=2] {'b'}": X,
    "%r = bf16[8,128]{1,0} all-reduce(%x), replica_groups=mesh['a'=4] {'a':(1)2}": X,
    "%r = bf16[2,128]{1,0} reduce-scatter(%x), replica_groups=[1,4]<=[4], to_apply=%sum": 0.75 * X,
    "%a = bf16[8,128]{1,0} all-to-all(%x), replica_groups=[1,4]<=[4], dimensions={0}": 0.75 * X,
    "%p = bf16[8,128]{1,0} collective-permute(%x), source_target_pairs={{0,1},{1,0}}": X,
    "%p = bf16[8,128]{1,0} collective-permute(%x), source_target_pairs={{0,0},{1,1}}": 0,
    "%s = (bf16[8,128]{1,0}, bf16[32,128]{1,0}) all-gather-start(%x), replica_groups=[1,4]<=[4]\n"
    "  %d = bf16[32,128]{1,0} all-gather-done(%s)": 3 * X,
    "%s = ((bf16[8,128]{1,0}), bf16[2,128]{1,0}, u32[]) async-start(%x), calls=%wrapped\n"
    "  %d = bf16[2,128]{1,0} async-done(%s), calls=%wrapped": 0.75 * X,
}  # fmt: skip


@pytest.mark.parametrize("line", COLLECTIVES)
def test_collectives_send_what_rings_send_and_pairs_count_once(line):
    cost = cost_of(line)
    assert sum(cost.collective_bytes.values()) == COLLECTIVES[line]
    assert sum(cost.collective_count.values()) == 1


def test_an_update_in_place_moves_the_update_and_no_more():
    line = "%f = f32[100,64]{1,0} fusion(%big, %at, %part), kind=kLoop, calls=%sliced"
    assert cost_of(line).bytes == 2 * 10 * 64 * 4 + 4


def test_a_copy_in_two_halves_is_read_once_and_written_once_and_one_half_is_elsewhere():
    line = "%s = (f32[10,64]{1,0:S(1)}, f32[10,64]{1,0}, u32[]{:S(2)}) copy-start(%part)"
    cost = cost_of(line + "\n  %d = f32[10,64]{1,0:S(1)} copy-done(%s)")
    assert (cost.bytes, cost.hbm_bytes) == (2 * 10 * 64 * 4, 10 * 64 * 4)


def test_the_dearest_branch_counts():
    line = ("%b = bf16[8,128]{1,0} conditional(%which, %x, %x), "
            "branch_computations={%cheap, %dear}")  # fmt: skip
    assert cost_of(line).bytes == 2 * X


def test_a_kernel_costs_what_it_declares_whatever_its_text():
    line = (
        '%k = bf16[8,128]{1,0} custom-call(%x), custom_call_target="tpu_custom_call", '
        'frontend_attributes={kernel_metadata={\n"a":"{1}"\n}}, backend_config='
        '{"custom_call_config":{"body":"(((","cost_estimate":{"flops":"600",'
        '"bytes_accessed":"100"}}}'
    )
    cost = cost_of(line, rates=Rates(100.0, 50.0, 1.0))
    assert (cost.flops, cost.bytes, cost.seconds, cost.unpriced) == (600, 100, 6.0, 6.0)


def test_padding_and_dilation_of_a_convolution_are_no_products():
    line = ("%i = f32[1,4,8]{2,1,0} custom-call()\n  %k = f32[3,8,2]{2,1,0} custom-call()\n"
            "  %conv = f32[1,9,2]{2,1,0} convolution(%i, %k), "
            "window={size=3 pad=2_2 lhs_dilate=2}, dim_labels=b0f_0io->b0f")  # fmt: skip
    pairs = sum((o - 2 + k) in (0, 2, 4, 6) for o in range(9) for k in range(3))
    assert cost_of(line).flops == 2 * 8 * 2 * pairs


def test_shapes():
    assert arrays("(bf16[8,128]{1,0:T(8,128)(2,1)S(1)}, f32[], s4[3]{0})") == [
        Array("bf16", (8, 128), 1), Array("f32", ()), Array("s4", (3,))]  # fmt: skip
    found = arrays("(bf16[8,128], f32[], s4[3], pred[2], f8e4m3fn[5], c64[1])")
    assert [a.bytes for a in found] == [2048, 4, 1.5, 2, 5, 8]


def test_groups_default_to_all_devices():
    reduce = Instruction("r", "all-reduce", "f32[]", (), "", "")
    assert group_size(reduce, 16) == 16
    assert sent_bytes(parse(LOOP).entry, reduce, 16) == 0


def test_text_without_an_entry_is_refused():
    with pytest.raises(ValueError, match="no ENTRY"):
        parse("HloModule empty\n")
