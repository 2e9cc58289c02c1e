//! `wakeset.h` in its parts: topics, and in them blocks of a comment and what it describes.

/// What stands between two `/* ---- … ---- */`.
pub struct Topic {
    pub blocks: Vec<Block>,
}

/// Declarations without an empty line between them, and the comment before them.
pub struct Block {
    pub comment: Vec<String>,
    pub code: String,
}

impl Block {
    /// The functions that are declared here.
    pub fn functions(&self) -> Vec<String> {
        if ["typedef", "#"].iter().any(|it| self.code.starts_with(it)) || self.code.contains('{') {
            return Vec::new();
        }
        let name = |statement: &str| {
            let (before, _) = statement.split_once('(')?;
            let name = before.rsplit([' ', '*', '\n']).next()?;
            name.starts_with("ws_").then(|| name.to_string())
        };
        self.code.split(';').filter_map(name).collect()
    }

    /// What the comment says after a word and a colon, up to the next such word.
    pub fn field(&self, word: &str) -> Option<&str> {
        let text = self.comment.last()?;
        let (_, rest) = text.split_once(&format!("{word}: "))?;
        let ends = ["Returns: ", "Errors: ", "No errors.", "Threads: ", "Signals: "];
        let end = ends.iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
        Some(rest[..end].trim())
    }

    /// The comment without its fields.
    pub fn description(&self) -> Vec<&str> {
        let mut paragraphs: Vec<_> = self.comment.iter().map(String::as_str).collect();
        if let Some(last) = paragraphs.pop() {
            let fields = ["Returns: ", "Errors: ", "No errors.", "Threads: "];
            let end = fields.iter().filter_map(|word| last.find(word)).min();
            paragraphs.push(last[..end.unwrap_or(last.len())].trim());
        }
        paragraphs
    }
}

/// The topics of a header, in its order.
pub fn topics(header: &str) -> Vec<Topic> {
    let body = header.split("\n#ifdef __cplusplus\n}\n").next().expect("its declarations");
    let parts = body.split("\n/* ---- ").skip(1);
    let topic = |part: &str| {
        let (_, rest) = part.split_once(" ---- */\n").expect("the title's end");
        let blocks = rest.split("\n\n").map(str::trim).filter(|text| !text.is_empty());
        Topic { blocks: joined(blocks).iter().map(|it| block(it)).collect() }
    };
    parts.map(topic).collect()
}

/// An empty line in a comment or between braces separates nothing.
fn joined<'a>(parts: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut blocks: Vec<String> = Vec::new();
    for part in parts {
        let is_open = |text: &String| {
            text.matches("/*").count() > text.matches("*/").count()
                || text.matches('{').count() > text.matches('}').count()
        };
        match blocks.last_mut().filter(|last| is_open(last)) {
            Some(last) => *last = format!("{last}\n\n{part}"),
            None => blocks.push(part.to_string()),
        }
    }
    blocks
}

fn block(text: &str) -> Block {
    let (comment, code) = match text.strip_prefix("/*") {
        Some(rest) => rest.split_once("*/").expect("the comment's end"),
        None => ("", text),
    };
    Block { comment: paragraphs(comment), code: code.trim().to_string() }
}

/// A comment's paragraphs, each on one line.
pub fn paragraphs(comment: &str) -> Vec<String> {
    let lines: Vec<_> = comment.lines().map(|line| line.trim().trim_start_matches('*')).collect();
    let text = lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join("\n");
    let joined = text.split("\n\n").map(|it| it.split_whitespace().collect::<Vec<_>>().join(" "));
    joined.filter(|paragraph| !paragraph.is_empty()).collect()
}
