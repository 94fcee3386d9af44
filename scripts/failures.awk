# Says again at the end of a run what `cargo test -- --show-output` printed of each failed test: its first lines, where a
# panic names its place, and its last ones. Frames of a backtrace are left out of both: the last panic's would hide what it said.
#
# Set with -v: first, last (lines of each test).

function over(   i, from) {
    if (name == "") return
    printf "== what %s said\n", name
    from = lines > first + last ? lines - last : first
    for (i = 0; i < lines && i < first; i++) print said[i]
    if (from > first) printf "   (%d lines left out)\n", from - first
    for (i = from; i < lines; i++) print said[i]
    name = ""
    lines = 0
}

/^failures:$/ { over(); part = "failures"; next }
/^successes:$/ || /^test result: / { over(); part = ""; next }
part == "failures" && /^---- .* ----$/ { over(); name = $2; next }
part == "failures" && (/^ +[0-9]+: / || /^ +at [^ ]+:[0-9]+:[0-9]+$/) { next }
# The list of names after their words is indented.
part == "failures" && name != "" { said[lines++] = $0 }
END { over() }
