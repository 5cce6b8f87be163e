#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# python.sh SCRIPT ARGS...: runs it with the interpreter that CHORALE_PYTHON names, because it has the packages.
exec "${CHORALE_PYTHON:-python3}" "$@"
