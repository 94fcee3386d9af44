//! Conditions and values of rules, in the Common Expression Language, over facts.
//!
//! A fact that is missing makes an answer unknown. It is never taken for false, for zero or for a default.

use crate::facts::Facts;
use cel::{Context, ExecutionError, Program, Value};
use serde::Serialize;

/// Sizes that expressions may name.
pub(crate) const SIZES: [(&str, i64); 4] =
    [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// The reason why an expression has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// A fact of this name is missing.
    #[error("not known: {0}")]
    Unknown(String),
    /// The expression makes no sense with these facts.
    #[error("the expression fails: {0}")]
    Broken(String),
}

/// An expression that was compiled.
#[derive(Debug)]
pub struct Expression {
    source: String,
    program: Program,
}

/// Functions that expressions may ask for.
const FUNCTIONS: [&str; 12] = [
    "contains",
    "double",
    "endsWith",
    "exists",
    "filter",
    "int",
    "matches",
    "max",
    "min",
    "size",
    "startsWith",
    "string",
];

impl Expression {
    /// Compiles it.
    ///
    /// # Errors
    /// If it is no expression; the error has its words on the place.
    pub fn new(source: &str) -> Result<Expression, String> {
        let program = Program::compile(source).map_err(|why| why.to_string())?;
        Ok(Expression { source: source.to_owned(), program })
    }

    /// Its text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The variables that it names, macros' own left out.
    pub fn variables(&self) -> Vec<String> {
        self.program.references().variables().into_iter().map(str::to_owned).collect()
    }

    /// Names of functions in it that there are not. An expression that asks for one would be unknown for ever.
    pub(crate) fn lacks(&self) -> Vec<String> {
        let references = self.program.references();
        let is_name = |it: &&str| it.chars().all(|c| c.is_ascii_alphanumeric());
        let asked = references.functions().into_iter().filter(is_name);
        asked.filter(|it| !FUNCTIONS.contains(it)).map(str::to_owned).collect()
    }

    fn value(&self, scope: &Scope) -> Result<Value, NoAnswer> {
        self.program.execute(&scope.0).map_err(|why| match why {
            ExecutionError::NoSuchKey(key) => NoAnswer::Unknown(key.to_string()),
            why => NoAnswer::Broken(why.to_string()),
        })
    }

    /// Its answer as yes or no.
    ///
    /// # Errors
    /// If a fact is missing, or it is no condition.
    pub fn holds(&self, scope: &Scope) -> Result<bool, NoAnswer> {
        match self.value(scope)? {
            Value::Bool(holds) => Ok(holds),
            other => Err(NoAnswer::Broken(format!("{} is neither true nor false", text(&other)?))),
        }
    }

    /// Its answer for people: a fraction has two digits.
    fn shown(&self, scope: &Scope) -> Result<String, NoAnswer> {
        match self.value(scope)? {
            Value::Float(value) if value.fract() != 0.0 => Ok(format!("{value:.2}")),
            value => text(&value),
        }
    }

    /// Its answer as the text that an option takes.
    ///
    /// # Errors
    /// If a fact is missing, or it is no plain value.
    pub fn text(&self, scope: &Scope) -> Result<String, NoAnswer> {
        text(&self.value(scope)?)
    }
}

fn text(value: &Value) -> Result<String, NoAnswer> {
    Ok(match value {
        Value::Int(value) => value.to_string(),
        Value::UInt(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::String(value) => value.to_string(),
        Value::List(values) => values.iter().map(text).collect::<Result<Vec<_>, _>>()?.join(", "),
        other => return Err(NoAnswer::Broken(format!("{other:?} is no plain value"))),
    })
}

/// The variables of expressions.
pub struct Scope(Context<'static>);

impl std::fmt::Debug for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scope")
    }
}

/// The variables that every expression may use.
pub const VARIABLES: [&str; 7] = ["it", "host", "cluster", "facts", "release", "workload", "goal"];

impl Scope {
    /// The scope for the whole of `facts`, with the purpose of a plan.
    ///
    /// # Errors
    /// If the facts cannot be shown to expressions.
    pub fn new(facts: &Facts, workload: &str, goal: &str) -> Result<Scope, NoAnswer> {
        let mut context = Context::default();
        for (name, size) in SIZES {
            context.add_variable_from_value(name, size);
        }
        context.add_variable_from_value("workload", workload.to_owned());
        context.add_variable_from_value("goal", goal.to_owned());
        let mut scope = Scope(context);
        scope.add("facts", facts)?;
        scope.add("cluster", &facts.cluster)?;
        Ok(scope)
    }

    fn add<T: Serialize>(&mut self, name: &str, value: &T) -> Result<(), NoAnswer> {
        self.0.add_variable_from_value(name, Shown::new(value)?.0);
        Ok(())
    }

    /// Has expressions see one subject, with its host and its release.
    pub fn look_at(&mut self, subject: &Shown, host: &Shown, release: Option<i64>) {
        self.0.add_variable_from_value("it", subject.0.clone());
        self.0.add_variable_from_value("host", host.0.clone());
        self.0.add_variable_from_value("release", release.map_or(Value::Null, Value::Int));
    }
}

/// An object as expressions see it. Made once for all rules: a copy of it is cheap.
#[derive(Debug)]
pub struct Shown(Value);

impl Shown {
    /// Shows `object` to expressions.
    ///
    /// # Errors
    /// If it has what they do not know.
    pub fn new<T: Serialize>(object: &T) -> Result<Shown, NoAnswer> {
        cel::to_value(object).map(Shown).map_err(|why| NoAnswer::Broken(why.to_string()))
    }
}

/// A text with expressions in braces.
#[derive(Debug)]
pub struct Template(Vec<Piece>);

#[derive(Debug)]
enum Piece {
    Text(String),
    Value(Expression),
}

impl Template {
    /// Reads it.
    ///
    /// # Errors
    /// If a brace is not closed, or holds no expression.
    pub fn new(source: &str) -> Result<Template, String> {
        let mut pieces = Vec::new();
        let mut rest = source;
        while let Some((before, after)) = rest.split_once('{') {
            let (inside, behind) =
                after.split_once('}').ok_or_else(|| format!("a brace is not closed: {source}"))?;
            pieces.push(Piece::Text(before.to_owned()));
            pieces.push(Piece::Value(Expression::new(inside).map_err(|why| format!("{{{inside}}}: {why}"))?));
            rest = behind;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Ok(Template(pieces))
    }

    /// Its expressions.
    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Value(expression) => Some(expression),
        })
    }

    /// The text with what its expressions say.
    ///
    /// # Errors
    /// If one has no answer.
    pub fn fill(&self, scope: &Scope) -> Result<String, NoAnswer> {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => Ok(text.clone()),
            Piece::Value(expression) => expression.text(scope),
        };
        self.0.iter().map(piece).collect()
    }

    /// The same for people: a fact that is missing is a question mark.
    pub fn show(&self, scope: &Scope) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Value(expression) => expression.shown(scope).unwrap_or_else(|_| "?".to_owned()),
        };
        self.0.iter().map(piece).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_that_rules_may_ask_for_is_there() {
        let scope = Scope::new(&Facts::default(), "w", "g").expect("a scope");
        for text in [
            "\"abc\".contains(\"b\")",
            "double(1) < 2.0",
            "\"abc\".endsWith(\"c\")",
            "[1].exists(x, x == 1)",
            "size([1, 2].filter(x, x > 1)) == 1",
            "int(\"3\") == 3",
            "\"osd.3\".matches(\"^osd[.][0-9]$\")",
            "max(1, 2) == 2 && min(1, 2) == 1",
            "\"abc\".startsWith(\"a\")",
            "string(3) == \"3\"",
        ] {
            let expression = Expression::new(text).expect(text);
            assert_eq!(expression.lacks(), [] as [&str; 0], "{text}");
            assert_eq!(expression.holds(&scope).map_err(|why| why.to_string()), Ok(true), "{text}");
        }
        assert_eq!(Expression::new("nothing(1) == 2").expect("an expression").lacks(), ["nothing"]);
    }
    use crate::facts::{Host, Memory, Osd};

    fn facts() -> Facts {
        let memory = Memory { total: 64 << 30, available: 1 << 30, swap_total: 0, swap_used: 0 };
        let host = Host { name: "n1".into(), memory: Some(memory), osds: vec![0, 1], ..Host::default() };
        let osd = Osd { id: 0, host: "n1".into(), class: Some("hdd".into()), ..Osd::default() };
        Facts { hosts: vec![host], osds: vec![osd], ..Facts::default() }
    }

    fn scope(facts: &Facts) -> Scope {
        let mut scope = Scope::new(facts, "rbd-random", "iops").expect("a scope");
        let [osd, host] =
            [Shown::new(&facts.osds[0]), Shown::new(&facts.hosts[0])].map(|it| it.expect("an object"));
        scope.look_at(&osd, &host, Some(18));
        scope
    }

    fn holds(source: &str) -> Result<bool, NoAnswer> {
        Expression::new(source).expect("an expression").holds(&scope(&facts()))
    }

    #[test]
    fn conditions_see_the_subject_its_host_and_the_purpose() {
        assert_eq!(holds("it.class == 'hdd' && release >= 18 && workload == 'rbd-random'"), Ok(true));
        assert_eq!(holds("host.memory.total >= size(host.osds) * 33 * GiB"), Ok(false));
        assert_eq!(holds("facts.osds.exists(o, o.id == 0) && cluster.flags == []"), Ok(true));
    }

    #[test]
    fn a_missing_fact_is_unknown_and_not_false() {
        assert_eq!(holds("it.tcmalloc"), Err(NoAnswer::Unknown("tcmalloc".into())));
        assert_eq!(holds("!it.tcmalloc"), Err(NoAnswer::Unknown("tcmalloc".into())));
        assert_eq!(holds("has(it.tcmalloc)"), Ok(false));
        assert_eq!(
            holds("it.options.osd_memory_target.int > 0"),
            Err(NoAnswer::Unknown("osd_memory_target".into()))
        );
        // One half that is false is enough.
        assert_eq!(holds("it.class == 'ssd' && it.tcmalloc"), Ok(false));
    }

    #[test]
    fn a_condition_that_is_no_condition_is_broken() {
        assert!(matches!(holds("it.id"), Err(NoAnswer::Broken(_))));
        assert!(matches!(holds("it.id + 'x' == 'x'"), Err(NoAnswer::Broken(_))));
        assert!(Expression::new("it.id ==").is_err());
    }

    #[test]
    fn templates_are_filled_or_say_that_a_fact_is_missing() {
        let facts = facts();
        let scope = scope(&facts);
        let of = |source| Template::new(source).expect("a template");
        assert_eq!(
            of("{host.memory.total / GiB} GiB for {size(host.osds)}").fill(&scope),
            Ok("64 GiB for 2".into())
        );
        assert_eq!(of("osd.{it.id}").fill(&scope), Ok("osd.0".into()));
        assert_eq!(of("{it.rss} bytes").fill(&scope), Err(NoAnswer::Unknown("rss".into())));
        assert_eq!(of("{it.rss} bytes").show(&scope), "? bytes");
        assert_eq!(of("{1.0 / 3.0} {2.0}").show(&scope), "0.33 2");
        assert!(Template::new("{it.id").is_err());
    }
}
