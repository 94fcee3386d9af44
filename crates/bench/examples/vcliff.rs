fn main() -> anyhow::Result<()> {
    use loligo_bench::virtual_cliff::*;
    let mut o = VirtualOptions { core: 1 << 30, cache: 0, depth: 32, seconds: 140, tail: 60, params: Default::default(), cache_write: 40_000, cache_flush: 400_000 };
    if let Ok(s) = std::env::var("SEC") { o.seconds = s.parse()?; o.tail = o.seconds * 3 / 7; }
    let raw = bare(&o);
    println!("raw {raw:.0}");
    for pct in std::env::args().skip(1).map(|a| a.parse::<u64>().unwrap()) {
        let o = VirtualOptions { cache: (1u64 << 30) * pct / 100, ..o.clone() };
        let r = run(&o)?;
        println!("{pct}% iops {:.0} = {:.1}x destage {:.0} worst second {} worst p99 {:.1} ms", r.iops, r.iops / raw, r.destaged, r.worst_second, r.worst_p99_ms);
        println!("  persec {:?}", r.per_second.iter().step_by(5).collect::<Vec<_>>());
        println!("  dirty {:?}", r.dirty_percent.iter().step_by(5).collect::<Vec<_>>());
        println!("  p99 {:?}", r.p99_ms.iter().step_by(5).map(|x| (x*10.0) as u64).collect::<Vec<_>>());
    }
    Ok(())
}
