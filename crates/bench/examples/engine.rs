//! `loligo bench engine` without the rest of the program.
fn main() -> anyhow::Result<()> {
    let o = loligo_bench::engine::EngineOptions { rounds: 1, requests: std::env::var("REQ").map_or(2_000_000, |v| v.parse().unwrap()), working_set: std::env::var("WS").map_or(4 << 30, |v| v.parse().unwrap()), index_cache: std::env::var("IDX").map_or(0, |v| v.parse().unwrap()), ..Default::default() };
    println!("{}", serde_json::to_string_pretty(&loligo_bench::engine::run(&o, |s| eprintln!("{s}"))?)?);
    Ok(())
}
