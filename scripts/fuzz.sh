#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time (default 30s).
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-30s}
grep -rl --include='*_test.go' '^func Fuzz' . | while read -r file; do
	dir=$(dirname "$file")
	sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' "$file" | while read -r target; do
		echo "== $dir $target"
		go test "$dir" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x
	done
done
