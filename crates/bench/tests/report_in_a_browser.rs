//! The report as a reader sees it: rendered by headless Chromium, where that is installed.

#![allow(clippy::print_stderr)]

use std::path::Path;
use std::process::Command;

use loligo_bench::fio::{Latency, Measured, Second};
use loligo_bench::report::{Check, Listing, Phase, Report, Round, Timeline};

fn side(iops: f64, mean_ms: f64) -> Measured {
    let ns = |factor: f64| (mean_ms * factor * 1e6) as u64;
    let series = (1..=50)
        .map(|at| Second {
            at: f64::from(at),
            iops: iops * (1.0 + 0.08 * (f64::from(at) * 1.7).sin()),
            p50_ns: ns(0.9),
            p99_ns: ns(2.5 + 0.4 * (f64::from(at) * 2.3).cos()),
        })
        .collect();
    let latency = Latency {
        mean_ns: mean_ms * 1e6,
        p50_ns: ns(0.9),
        p90_ns: ns(1.6),
        p99_ns: ns(2.5),
        p999_ns: ns(4.0),
        max_ns: ns(6.0),
    };
    Measured {
        command: "fio".to_owned(),
        requests: (iops * 50.0) as u64,
        seconds: 50.0,
        iops,
        bytes_per_second: iops * 4096.0,
        latency,
        series,
        logged_p99_ns: None,
        reads: None,
        writes: None,
    }
}

fn sample() -> Report {
    let phase = |name: &str, detail: &str, before: (f64, f64), after: (f64, f64)| Phase {
        name: name.to_owned(),
        detail: detail.to_owned(),
        before: side(before.0, before.1),
        after: side(after.0, after.1),
    };
    let phases = vec![
        phase("4K random read", "128 MiB working set, warm, depth 32", (196.0, 163.0), (92_300.0, 0.34)),
        phase("4K random write", "whole core, depth 32", (188.0, 170.0), (11_050.0, 2.9)),
        phase("4K random 70/30", "128 MiB working set, depth 32", (191.0, 167.0), (24_700.0, 1.3)),
        phase("512K sequential read", "depth 4", (201.0, 19.9), (3_900.0, 1.02)),
        phase("512K sequential write", "depth 4", (199.0, 20.1), (610.0, 6.5)),
    ];
    let mut before = phases[1].before.series.clone();
    before.truncate(20);
    let after = phases[1].after.series.clone();
    let dirty = (1..=50).map(|at| (f64::from(at), (f64::from(at) / 9.0).min(1.0) * 0.83)).collect();
    Report {
        title: "Loligo: a slow disk <before> and after".to_owned(),
        summary: "One 1 GiB core behind a model of a 7,200 rpm disk, with and without a 256 MiB cache."
            .to_owned(),
        written: "2026-11-21 13:45 UTC".to_owned(),
        facts: vec![("Processor".to_owned(), "a processor (2 cores)".to_owned())],
        timeline: Some(Timeline { name: phases[1].name.clone(), before, after, dirty }),
        phases,
        sides: ["bare", "cached"].map(str::to_owned),
        ramp: [0.0, 0.4, 0.97]
            .map(|hits| Round { hits, run: side(400.0 + 9e4 * hits, 60.0 - 61.0 * hits) })
            .into(),
        listings: vec![Listing {
            title: "Marks".to_owned(),
            detail: "What was wanted.".to_owned(),
            heads: ["load", "verdict"].map(str::to_owned).into(),
            rows: vec![["4K write", "MISS"].map(str::to_owned).into()],
        }],
        checks: vec![Check { what: "read back through NBD".to_owned(), bytes: 64 << 20, passed: true }],
        gains: Vec::new(),
        commands: vec!["loligo serve --name cached --core 'hdd:core?rpm=7200&track=1MiB'".to_owned()],
        notes: vec!["Both sides ran one after the other.".to_owned()],
    }
}

fn chromium(profile: &Path, extra: &[&str], page: &Path) -> Option<std::process::Output> {
    let output = Command::new("timeout")
        .args([
            "60",
            "chromium",
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
        ])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-javascript", "--hide-scrollbars"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(extra)
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("timeout (coreutils) runs");
    // 127 is timeout's word for a program that is not there.
    (output.status.code() != Some(127)).then_some(output)
}

#[test]
fn the_report_shows_its_table_and_plots_without_a_network() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("report.html");
    sample().write(&page).unwrap();
    let profile = dir.path().join("profile");
    let Some(output) = chromium(&profile, &["--dump-dom", "--virtual-time-budget=2000"], &page) else {
        eprintln!("SKIP: chromium is not installed (apt-get install chromium)");
        return;
    };
    let dom = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for id in [
        "phases",
        "plot-bars",
        "plot-ramp",
        "plot-timeline",
        "plot-latency",
        "checks",
        "facts",
        "command-list",
    ] {
        assert!(dom.contains(&format!("id=\"{id}\"")), "no {id} in the page");
    }
    assert_eq!(
        dom.matches("<svg").count(),
        1 + 1 + 1 + 5,
        "bars, ramp, timeline, one latency panel per phase"
    );
    assert!(dom.contains("MISS"), "a table of its own is there");
    assert!(dom.contains("4K random write") && dom.contains("58.8x"), "the table holds names and ratios");
    assert!(dom.contains("&lt;before&gt;"), "text is escaped");
    let shot = dir.path().join("shot.png");
    let args = [format!("--screenshot={}", shot.display()), "--window-size=1000,2600".to_owned()];
    let output = chromium(&profile, &args.each_ref().map(String::as_str), &page).unwrap();
    assert!(output.status.success());
    let size = std::fs::metadata(&shot).unwrap().len();
    assert!(size > 50_000, "a page of plots is more than {size} bytes of picture");
    if let Some(keep) = std::env::var_os("LOLIGO_KEEP_REPORT") {
        std::fs::copy(&page, Path::new(&keep)).unwrap();
    }
}

#[test]
fn the_report_refers_to_nothing_outside_itself() {
    let html = sample().html().unwrap();
    for outside in ["<script", "<link", "<img", "@import", "url(", "src="] {
        assert!(!html.contains(outside), "the page uses {outside}");
    }
    let links = html.replace("http://www.w3.org/2000/svg", "");
    assert!(!links.contains("http://") && !links.contains("https://"), "the page names a host");
}

#[test]
fn an_unwritable_place_is_named_and_a_report_is_readable_by_all() {
    let dir = tempfile::tempdir().unwrap();
    let error = sample().write(&dir.path().join("missing/report.html")).unwrap_err();
    assert!(format!("{error:#}").contains("missing/report.html"));
    let page = dir.path().join("report.html");
    sample().write(&page).unwrap();
    sample().write(&page).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left beside it");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&page).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o644);
}
