//! The file of 'loligo volume create --definition'.

use anyhow::{Context, Result, anyhow, ensure};
use loligo_client::toml_error::not_toml;
use serde_json::Value as Json;
use toml::{Table, Value};

/// Keys as they are typed in TOML.
pub(super) fn parse(text: &str) -> Result<Table> {
    toml::from_str(text).map_err(|why| anyhow!(not_toml(&why)))
}

/// The keys of the volume `name` in a file: these alone, or what 'volume show' prints, or 'config show', or a whole configuration, in
/// TOML or JSON.
pub(super) fn read(text: &str, name: &str) -> Result<Table> {
    let keys = if text.trim_start().starts_with('{') { from_json(text)? } else { parse(text)? };
    match keys.get("volume") {
        Some(Value::Table(sections)) => section(sections, name),
        _ => Ok(keys),
    }
}

/// The definition of `name`; of one volume alone whatever it was called.
fn section(sections: &Table, name: &str) -> Result<Table> {
    let only = sections.iter().next().filter(|_| sections.len() == 1).map(|(_, section)| section);
    let names = || sections.keys().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    let found = sections.get(name).or(only);
    let found = found.with_context(|| {
        format!(
            "it has sections of {}, but none of '{name}': give the name of one of them, or a file with \
            one section",
            names()
        )
    })?;
    Ok(found.as_table().context("[volume] has no sections: give [volume.NAME]")?.clone())
}

fn from_json(text: &str) -> Result<Table> {
    let mut all: Json = serde_json::from_str(text).context("it begins like JSON but is not valid JSON")?;
    if all["definition"].is_object() {
        all = all["definition"].take();
    }
    let keys = Value::try_from(without_nulls(all)).context("it is JSON, but no definition of a volume")?;
    ensure!(keys.is_table(), "it is JSON and no object");
    keys.try_into().context("it is JSON, but no definition of a volume")
}

/// TOML has no word for what is not there.
fn without_nulls(value: Json) -> Json {
    match value {
        Json::Object(all) => {
            all.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, without_nulls(v))).collect()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_found_in_whatever_prints_it() {
        let core = |text: &str| read(text, "b").map(|keys| keys["core"].as_str().map(str::to_owned));
        for text in [
            "core = \"x\"",
            "# serving\n[volume.other]\ncore = \"x\"",
            "[daemon]\n[volume.a]\ncore = \"y\"\n[volume.b]\ncore = \"x\"",
            "{\"core\": \"x\", \"tls\": {\"cert\": null}}",
            "{\"name\": \"a\", \"size\": null, \"definition\": {\"core\": \"x\"}}",
            "{\"daemon\": {}, \"volume\": {\"b\": {\"core\": \"x\"}, \"a\": {}}}",
        ] {
            assert_eq!(
                core(text).unwrap_or_else(|e| panic!("{text}: {e:#}")).as_deref(),
                Some("x"),
                "{text}"
            );
        }
        for (text, said) in [
            ("[volume.a]\n[volume.c]", "sections of 'a', 'c', but none of 'b'"),
            ("volume = {}", "none of 'b'"),
            ("[volume]\nb = 5", "no sections"),
            ("{", "is not valid JSON"),
        ] {
            let why = format!("{:#}", core(text).expect_err(text));
            assert!(why.contains(said), "{text}: {why}");
        }
    }
}
