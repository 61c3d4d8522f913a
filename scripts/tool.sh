#!/bin/sh
# Starts a tool of go's (go help build: -toolexec), where programs are built for one run of the tests: it collects no
# garbage, as it ends soon, and inlines calls only in packages that compute for long, as that takes a fourth of the
# time of compiling.
export GOGC=off GOMEMLIMIT=3GiB
tool=$1
shift
case $tool:$1 in
*/compile:-V=full) ;; # what it is, for go's cache
*/compile:*)
	for long in engine cluster experiments forward learn network perf place policy power quota requests scenario \
		search serving sim solve trace tune; do
		case " $* " in *" -p github.com/muster-gpu/muster/$long"*) exec "$tool" "$@" ;; esac
	done
	case " $* " in *" -std "* | *" -p gonum.org/"*) exec "$tool" "$@" ;; esac
	exec "$tool" -l "$@"
	;;
esac
exec "$tool" "$@"
