# SPDX-License-Identifier: Apache-2.0
"""What gdb prints of chorale's types; it knows std::span, which is Span. In gdb, or in ~/.gdbinit:

    source tools/gdb/chorale_printers.py

Shape<3, 4>        (3, 4)
nn::Of<float, 3>   (B, 3) of float
nn::Tensor         (B, 3) of float, value 2
Variable           dense/kernel (784, 128): 100352: 0.01, -0.02, ..
Plan, PlanView     2 variables, 100480 parameters in 1 bucket: dense/kernel (784, 128), dense/bias (128,)
Variables          the same of the plan, and how many numbers there are
Gradients          loss 34.5 of 16 rows; 2 variables, 100490 numbers
Rows<Image>        32 rows of Image
"""
import re

import gdb
import gdb.printing

SHOWN = 6                                                                  # numbers of a span, variables of a plan


def dims(numbers):
    return "(" + ", ".join(map(str, numbers)) + (",)" if len(numbers) == 1 else ")")


def of_type(value):
    """The arguments of a template, as its name has them."""
    found = re.search(r"<(.*)>$", str(value.type.strip_typedefs().unqualified()))
    return found[1] if found else ""


def span_of(value):
    """(pointer, elements) of a std::span."""
    extent = value.type.strip_typedefs().template_argument(1)
    size = value["_M_extent"]["_M_extent_value"] if int(extent) + 1 in (0, 1 << 64) else extent
    return value["_M_ptr"], int(size)


def text_of(name):
    """A std::string_view, or a Name, which has its characters inside."""
    fields = {field.name for field in name.type.strip_typedefs().fields()}
    if "_M_str" in fields:
        return name["_M_str"].string(length=int(name["_M_len"]))
    return name["text"]["_M_elems"].string(length=int(name["length"]))


def first(pointer, size):
    shown = ", ".join(str(pointer[i]) for i in range(min(size, SHOWN)))
    return shown + (", .." if size > SHOWN else "")


def planned(pointer, size):
    """The variables of a plan: names and shapes."""
    each = []
    for i in range(min(size, SHOWN)):
        spec = pointer[i]["spec"]
        each.append(f"{text_of(pointer[i]['name'])} {dims([int(spec['dims']['_M_elems'][d]) for d in range(int(spec['rank']))])}")
    return ", ".join(each) + (", .." if size > SHOWN else "")


def count(number, what):
    return f"{number} {what}" + ("" if number == 1 else "s")


class Shown:
    """A printer of one line."""

    def __init__(self, value):
        self.value = value


class Shape(Shown):
    def to_string(self):
        return dims([int(d) for d in of_type(self.value).split(",")])


class Of(Shown):
    @staticmethod
    def text(arguments):
        element, *rest = [part.strip() for part in arguments.split(",")]
        return dims(["B", *("?" if part.startswith("-") else part for part in rest)]) + " of " + element

    def to_string(self):
        return self.text(of_type(self.value))


class Tensor(Shown):
    def to_string(self):
        of = re.search(r"nn::Of<(.*)>", of_type(self.value))
        return f"{Of.text(of[1]) if of else of_type(self.value)}, value {int(self.value['value'])}"


class Variable(Shown):
    def to_string(self):
        shape, rank = span_of(self.value["shape"])
        pointer, size = span_of(self.value["value"])
        return f"{text_of(self.value['name'])} {dims([int(shape[i]) for i in range(rank)])}: {size}: {first(pointer, size)}"


class Plan(Shown):
    def to_string(self):
        variables = self.value["variables"]
        if "_M_elems" in {field.name for field in variables.type.strip_typedefs().fields()}:
            pointer, size = variables["_M_elems"], int(self.value.type.strip_typedefs().template_argument(0))
        else:
            pointer, size = span_of(variables)
        return (f"{count(size, 'variable')}, {count(int(self.value['parameters']), 'parameter')} in "
                f"{count(int(self.value['buckets']), 'bucket')}: {planned(pointer, size)}")


class Variables(Shown):
    def to_string(self):
        pointer, size = span_of(self.value["plan"])
        return f"{count(size, 'variable')} in {count(span_of(self.value['values'])[1], 'number')}: {planned(pointer, size)}"


class Gradients(Shown):
    def to_string(self):
        pointer, size = span_of(self.value["values"])
        if size == 0:
            return "no gradients"
        return f"loss {float(pointer[0]):g} of {float(pointer[1]):g} rows; {count(span_of(self.value['plan'])[1], 'variable')}, {count(size, 'number')}"


class Rows(Shown):
    def to_string(self):
        return count(int(self.value["rows"]), "row") + " of " + of_type(self.value)


PRINTERS = {"Shape": Shape, "nn::Of": Of, "nn::Tensor": Tensor, "Variable": Variable, "Variables": Variables,
            "Gradients": Gradients, "Plan": Plan, "PlanView": Plan, "Rows": Rows}

printers = gdb.printing.RegexpCollectionPrettyPrinter("chorale")
for name, printer in PRINTERS.items():
    printers.add_printer(name, rf"^chorale::{name}(<.*>)?$", printer)
gdb.printing.register_pretty_printer(None, printers, replace=True)
