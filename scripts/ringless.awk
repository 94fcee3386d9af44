# Passes on what `cargo test -- --show-output` prints where the kernel, or who stands in for it, has no io_uring: a test that failed
# because it was refused a ring is told as `SKIP` and counted as ignored. All other failures stay.

function over(   i) {
    if (name == "") return
    if (ringless) {
        refused[name] = 1
        refusals++
        printf "SKIP: %s: no io_uring here\n", name
    } else for (i = 0; i < lines; i++) print said[i]
    name = ""
}
function program_over() { over(); part = ""; lists = 0; refusals = 0; split("", refused) }

/^running [0-9]+ tests?$/ { program_over() }
/^failures:$/ { over(); part = "failures"; if (++lists == 2) part = "names" }
part == "failures" && /^---- .* ----$/ { over(); name = $2; lines = 0; ringless = 0 }
part == "failures" && name != "" {
    said[lines++] = $0
    if (/io_uring is not allowed here/) ringless = 1
    next
}
part == "names" && ($1 in refused) { next }
/^test .* \.\.\. FAILED$/ { next }
/^test result: / && refusals > 0 {
    failed = $6 - refusals
    sub(/[0-9]+ failed/, failed " failed")
    sub(/[0-9]+ ignored/, ($8 + refusals) " ignored")
    if (failed == 0) sub(/FAILED/, "ok")
    print
    all_refused = failed == 0
    program_over()
    next
}
/^test result: / { all_refused = 0 }
# Cargo's word on the program before.
/^error: test failed, to rerun/ && all_refused { next }
{ print }
END { over() }
