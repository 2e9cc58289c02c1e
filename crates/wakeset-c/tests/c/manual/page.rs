//! One page: a block of functions as roff.

use roff::{Inline, Roff, bold, italic, roman};

use super::errors::{Entry, entries};
use super::header::{Block, Topic, paragraphs};

/// When the pages were last changed in more than single words.
const DATE: &str = "2026-11-24";

/// A page's functions, the first of which names it, and its text.
pub struct Page {
    pub functions: Vec<String>,
    pub text: String,
}

/// All pages of the topics. `examples` are programs in the order in
/// which they are tried.
pub fn pages(topics: &[Topic], examples: &[String]) -> Vec<Page> {
    let mut pages = Vec::new();
    for topic in topics {
        for block in topic.blocks.iter().filter(|block| !block.functions().is_empty()) {
            pages.push(page(topics, topic, block, examples));
        }
    }
    pages
}

fn page(topics: &[Topic], topic: &Topic, block: &Block, examples: &[String]) -> Page {
    let functions = block.functions();
    let mut page = Roff::new();
    let description = block.description();
    let name = first_sentence(description.first().copied().unwrap_or_default());
    page.control("SH", ["NAME"]);
    page.text([roman(format!("{} - {name}", functions.join(", ")))]);
    page.control("SH", ["LIBRARY"]);
    page.text([italic("libwakeset"), roman(", "), italic("-lwakeset")]);
    synopsis(block, &mut page);
    page.control("SH", ["DESCRIPTION"]);
    prose(&description, &mut page);
    for other in topics.iter().flat_map(|topic| &topic.blocks) {
        declarations(other, block, &mut page);
    }
    returns(block, &functions, &mut page);
    errors(block, &mut page);
    attributes(block, &mut page);
    example(&functions, examples, &mut page);
    see_also(topic, block, &functions, &mut page);
    let title = format!(
        ".\\\" Made from wakeset.h by the crate's tests: see its README.\n\
         .TH {} 3 \"{DATE}\" \"libwakeset {}\" \"Wakeset\"\n",
        functions[0],
        env!("CARGO_PKG_VERSION")
    );
    Page { functions, text: title + &page.to_roff() }
}

/// A text's first sentence for the list of all pages: without its end, and in lower case.
fn first_sentence(text: &str) -> String {
    let end = text.find([':', ';', '.']).unwrap_or(text.len());
    let mut sentence = text[..end].replace('`', "");
    sentence.replace_range(..1, &sentence[..1].to_lowercase());
    sentence
}

fn synopsis(block: &Block, page: &mut Roff) {
    page.control("SH", ["SYNOPSIS"]).control("nf", []);
    if block.code.contains("uffd_msg") {
        page.text([bold("#include <linux/userfaultfd.h>")]);
    }
    page.text([bold("#include <wakeset.h>")]).control("PP", []);
    for line in block.code.lines() {
        page.text(prototype(line));
    }
    page.control("fi", []);
}

/// A line of a prototype: bold, and the parameters in italics.
fn prototype(line: &str) -> Vec<Inline> {
    let mut inlines = Vec::new();
    let mut text = String::new();
    let mut rest = line;
    while let Some(end) = rest.find([',', ')', '(', ' ', '*']) {
        let (word, after) = rest.split_at(end);
        let is_parameter = after.starts_with([',', ')']) && !["", "void", "..."].contains(&word);
        if is_parameter {
            inlines.extend([bold(std::mem::take(&mut text)), italic(word)]);
        } else {
            text.push_str(word);
        }
        text.push_str(&after[..1]);
        rest = &after[1..];
    }
    text.push_str(rest);
    inlines.push(bold(text));
    inlines
}

fn prose(paragraphs: &[&str], page: &mut Roff) {
    for (i, paragraph) in paragraphs.iter().enumerate() {
        if i > 0 {
            page.control("PP", []);
        }
        page.text(inlines(paragraph));
    }
}

/// Text with what stands between backquotes in italics, and the names of pages in bold.
fn inlines(text: &str) -> Vec<Inline> {
    let mut inlines = Vec::new();
    for (i, part) in text.split('`').enumerate() {
        if i % 2 == 1 {
            inlines.push(italic(part));
            continue;
        }
        let mut rest = part;
        while let Some((at, name, section, after)) = next_page(rest) {
            inlines.extend([roman(&rest[..at]), bold(name), roman(format!("({section})"))]);
            rest = after;
        }
        inlines.push(roman(rest));
    }
    inlines
}

/// The next `name(2)`, or `ws_name()`, whose page is in section 3: where, and what follows.
fn next_page(text: &str) -> Option<(usize, &str, &str, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for (open, _) in text.match_indices('(') {
        let begin = text[..open].rfind(|c| !is_part(c)).map_or(0, |i| i + 1);
        let name = &text[begin..open];
        let inner = &text[open + 1..];
        let Some(close) = inner.find(')') else { continue };
        let section = match &inner[..close] {
            "" if name.starts_with("ws_") => "3",
            digit if digit.len() == 1 && digit.as_bytes()[0].is_ascii_digit() => digit,
            _ => continue,
        };
        if !name.is_empty() {
            return Some((begin, name, section, &inner[close + 1..]));
        }
    }
    None
}

/// Types and constants that a block of functions needs.
fn declarations(block: &Block, functions: &Block, page: &mut Roff) {
    let text = format!("{} {}", functions.code, functions.comment.join(" "));
    if let Some(rest) = block.code.strip_prefix("typedef struct ") {
        let name = rest.split(' ').next().expect("a name");
        let is_made =
            text.contains(&format!("{name} *ws_")) || text.contains(&format!("{name} **"));
        if is_made {
            page.control("PP", []).text([bold(name), roman(":")]);
            prose(&block.description(), page);
        }
    }
    let structure = block.code.split('{').next().unwrap_or("").trim();
    if structure.starts_with("struct ")
        && block.code.contains('{')
        && functions.code.contains(&format!("{structure} *"))
    {
        members(block, page);
    }
    if block.code.starts_with("#define") {
        let names: Vec<_> = defined(&block.code).into_iter().collect();
        let is_meant = |name: &str| {
            let words = text.split(|c: char| !c.is_ascii_uppercase() && c != '_' && c != '*');
            words.into_iter().any(|word| match word.strip_suffix('*') {
                Some(prefix) => prefix.starts_with("WS_") && name.starts_with(prefix),
                None => word == name,
            })
        };
        if names.iter().any(|(name, _)| is_meant(name)) {
            constants(block, &names, page);
        }
    }
}

/// The constants of a block: names, and what stands beside each.
fn defined(code: &str) -> Vec<(String, String)> {
    let entry = |part: &str| {
        let name = part.split_whitespace().next().expect("a name").to_string();
        let comment = part.split_once("/*").map_or("", |(_, comment)| comment);
        let comment = comment.split("*/").next().unwrap_or(comment);
        (name, paragraphs(comment).join(" "))
    };
    code.split("#define ").skip(1).map(entry).collect()
}

fn constants(block: &Block, names: &[(String, String)], page: &mut Roff) {
    let whole = block.description();
    if names.len() > 1 && !whole.is_empty() {
        page.control("PP", []);
        prose(&whole, page);
    }
    for (name, beside) in names {
        page.control("TP", []).text([bold(name.as_str())]);
        match names.len() {
            1 if beside.is_empty() => prose(&whole, page),
            _ => prose(&[&sentence(beside)], page),
        }
    }
}

fn sentence(words: &str) -> String {
    let (first, rest) = words.split_at(words.len().min(1));
    let end = if words.ends_with('.') { "" } else { "." };
    format!("{}{rest}{end}", first.to_uppercase())
}

/// A structure: its members without comments, and then one after the other with its own.
fn members(block: &Block, page: &mut Roff) {
    let (before, body) = block.code.split_once('{').expect("its members");
    let (body, _) = body.rsplit_once('}').expect("its end");
    let mut found: Vec<(String, String)> = Vec::new();
    let mut pending = String::new();
    let mut rest = body;
    while let Some(end) = rest.find([';', '/']) {
        let (code, after) = rest.split_at(end);
        if let Some(comment) = after.strip_prefix("/*") {
            let (comment, after) = comment.split_once("*/").expect("the comment's end");
            let text = paragraphs(comment).join(" ");
            // Beside the member before it, or above the next one.
            match found.last_mut() {
                Some((_, own)) if !code.contains('\n') => *own = text,
                _ => pending = text,
            }
            rest = after;
        } else {
            found.push((code.trim().to_string(), std::mem::take(&mut pending)));
            rest = &after[1..];
        }
    }
    prose(&block.description(), page);
    page.control("PP", []).control("EX", []).text([roman(format!("{} {{", before.trim()))]);
    for (member, _) in &found {
        page.text([roman(format!("    {member};"))]);
    }
    page.text([roman("};")]).control("EE", []);
    for (member, text) in found.iter().filter(|(_, text)| !text.is_empty()) {
        let name = member.split(")(").next().unwrap_or(member);
        let name = name.rsplit([' ', '*']).next().unwrap_or(name);
        page.control("TP", []).text([italic(name)]);
        prose(&[&sentence(text)], page);
    }
}

fn returns(block: &Block, functions: &[String], page: &mut Roff) {
    page.control("SH", ["RETURN VALUE"]);
    let Some(value) = block.field("Returns") else {
        assert!(
            block.code.starts_with("void "),
            "the header does not say what {functions:?} return"
        );
        page.text([roman("None.")]);
        return;
    };
    let value = value.trim_end_matches('.');
    let error =
        if block.code.split('(').next().is_some_and(|it| it.contains('*')) { "NULL" } else { "-1" };
    match value.strip_prefix("as ") {
        Some(others) => page.text(inlines(&format!("The same as {others}."))),
        None => page.text(inlines(&format!("On success: {value}."))),
    };
    let on_error = [roman("On an error: "), roman(error), roman(", and "), italic("errno")];
    page.text(on_error).text([roman("says which.")]);
}

fn errors(block: &Block, page: &mut Roff) {
    page.control("SH", ["ERRORS"]);
    let Some(field) = block.field("Errors") else {
        page.text([roman("None.")]);
        return;
    };
    let found = entries(field);
    for (i, entry) in found.iter().enumerate() {
        match entry {
            Entry::Numbers(numbers, meaning) => {
                page.control("TP", []).text([bold(numbers.join(", "))]).text(inlines(meaning))
            }
            // A heading begins a paragraph by itself.
            Entry::Sentence(sentence) if i == 0 => page.text(inlines(sentence)),
            Entry::Sentence(sentence) => page.control("PP", []).text(inlines(sentence)),
        };
    }
}

fn attributes(block: &Block, page: &mut Roff) {
    let threads = match block.field("Threads").expect("threads") {
        "any." => "MT-Safe. Any number of threads may call it at a time.",
        "one." => "Any thread may call it, but one at a time for the same object.",
        other => panic!("Threads: {other}"),
    };
    let signals = block.field("Signals").expect("signals");
    let (safe, rest) = signals.split_once('.').expect("a full stop");
    let safety = match safe {
        "safe" => "AS-Safe, unless it has to sleep. A signal handler may call it.",
        "unsafe" => "AS-Unsafe. No signal handler may call it.",
        other => panic!("Signals: {other}"),
    };
    page.control("SH", ["ATTRIBUTES"]);
    page.control("TP", []).text([bold("Thread safety")]).text([roman(threads)]);
    page.control("TP", []).text([bold("Signal safety")]).text([roman(safety)]);
    page.control("TP", []).text([bold("Cancellation")]);
    let cancels = rest.trim().strip_prefix("Cancels");
    let which = cancels.and_then(|rest| rest.strip_prefix(" (")).and_then(|it| it.split_once(')'));
    let point = "A cancellation point where it sleeps in the kernel";
    let in_process = "A thread that sleeps in an in-process object is not cancelled there, but at \
                      its next cancellation point.";
    let text = match (cancels, which) {
        (Some(_), Some((which, _))) => format!("{point} ({which}). {in_process}"),
        (Some(_), None) => format!("{point}. {in_process}"),
        (None, _) => "Not a cancellation point.".to_string(),
    };
    page.text([roman(text)]);
    page.control("PP", []).text(inlines("The words are those of attributes(7)."));
}

/// The first program that calls all functions of the page.
fn example(functions: &[String], examples: &[String], page: &mut Roff) {
    let calls = |text: &&String| functions.iter().all(|name| text.contains(&format!("{name}(")));
    let text = examples.iter().find(calls);
    let text = text.unwrap_or_else(|| panic!("no program in examples/manual calls {functions:?}"));
    page.control("SH", ["EXAMPLES"]).control("EX", []);
    for line in text.lines() {
        page.text([roman(line)]);
    }
    page.control("EE", []);
}

/// The pages that the comment names, and those of the topic.
fn see_also(topic: &Topic, block: &Block, functions: &[String], page: &mut Roff) {
    let mut others = Vec::new();
    let text = block.comment.join(" ");
    let mut rest = text.as_str();
    while let Some((_, name, section, after)) = next_page(rest) {
        others.push((name.to_string(), section.to_string()));
        rest = after;
    }
    let of_topic = topic.blocks.iter().filter_map(|block| block.functions().into_iter().next());
    others.extend(of_topic.map(|name| (name, "3".to_string())));
    others.push(("wakeset".to_string(), "7".to_string()));
    others.retain(|(name, _)| !functions.contains(name));
    others.sort_by(|a, b| (&a.1, &a.0).cmp(&(&b.1, &b.0)));
    others.dedup();
    page.control("SH", ["SEE ALSO"]);
    let last = others.len() - 1;
    for (i, (name, section)) in others.iter().enumerate() {
        let end = if i < last { "," } else { "" };
        page.text([bold(name.as_str()), roman(format!("({section}){end}"))]);
    }
}
