# Adds up what `cargo test -- --show-output` printed and says `N passed, N failed, N skipped`.
#
# A test that passed but says on a line of its own that it skipped something ("SKIP: why") counts as skipped, not as
# passed; so does an ignored one. A test program that failed without a result (it crashed, or did not compile) counts
# as one failure. A step that could not be taken says "SKIPPED STEP: why" and is one more that was skipped.

function tests_end() { section = ""; skips = 0 }

/^successes:$/ { part = "successes"; tests_end(); next }
/^failures:$/ { part = "failures"; tests_end(); next }
/^---- .* ----$/ { section = $2; skips = 0; next }
part == "successes" && section != "" && /^SKIP/ { if (!skips++) said++; next }
/^test result: / {
    for (i = 3; i < NF; i++) {
        if ($(i + 1) ~ /^passed/) passed += $i
        if ($(i + 1) ~ /^failed/) { failed += $i; accounted += $i > 0 }
        if ($(i + 1) ~ /^ignored/) ignored += $i
    }
    part = ""
    tests_end()
}
/^FAILED STEP: / { failed++ }
/^SKIPPED STEP: / { ignored++ }
/^error: (test|doctest) failed, to rerun/ { programs++ }
END {
    if (programs > accounted) failed += programs - accounted
    printf "%d passed, %d failed, %d skipped\n", passed - said, failed, ignored + said
    exit failed > 0 || passed == 0
}
