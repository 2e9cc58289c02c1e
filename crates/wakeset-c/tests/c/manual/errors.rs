//! The field `Errors:` of a comment as a list: each number with what it means.

/// An entry: the numbers and what they mean, or a sentence about all others.
#[derive(Debug, PartialEq)]
pub enum Entry {
    Numbers(Vec<String>, String),
    Sentence(String),
}

/// What a number means where the header says nothing else.
const MEANINGS: [(&str, &str); 19] = [
    ("EAGAIN", "The descriptor does not block, and the call would have to wait."),
    ("EBADF", "A descriptor is not open."),
    ("ECANCELED", "The timer is one with TFD_TIMER_CANCEL_ON_SET, and the clock was set."),
    ("EEXIST", "The set watches this already."),
    ("EFAULT", "A pointer is NULL that must not be."),
    ("EINTR", "A signal handler ran before the call could return anything."),
    ("EINVAL", "An argument has a value that the call does not take."),
    ("ELOOP", "The sets would watch each other in a circle, or be nested too deeply."),
    ("EMFILE", "The process has as many descriptors as it may have (RLIMIT_NOFILE)."),
    ("ENFILE", "The system has as many open files as it may have."),
    ("ENODEV", "The kernel could not mount its device for anonymous inodes."),
    ("ENOENT", "The set does not watch this."),
    ("ENOMEM", "There is too little memory."),
    ("ENOSPC", "The user has as many watches as the kernel allows (max_user_watches of epoll(7))."),
    ("ENOTSOCK", "The descriptor is not a socket."),
    ("EPERM", "The file cannot be watched, or the caller may not use this clock."),
    ("ETIMEDOUT", "The time is up."),
    ("ENOSYS", "The kernel does not have the call."),
    ("EBUSY", "The object is in use."),
];

/// The entries, in the header's order.
pub fn entries(field: &str) -> Vec<Entry> {
    let field = field.trim_end_matches('.');
    parts(field, ';').into_iter().flat_map(clause).collect()
}

/// The parts between a separator, which does not count between parentheses.
fn parts(text: &str, separator: char) -> Vec<&str> {
    let (mut depth, mut begin, mut parts) = (0, 0, Vec::new());
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if c == separator && depth == 0 => {
                parts.push(text[begin..i].trim());
                begin = i + 1;
            }
            _ => {}
        }
    }
    parts.push(text[begin..].trim());
    parts
}

/// What stands between two semicolons: numbers, a condition for all of them, or a sentence.
fn clause(text: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut bare: Vec<String> = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(',').trim_start();
        let after_and = rest.strip_prefix("and ").unwrap_or(rest);
        let Some((number, after)) = number(after_and) else { break };
        bare.push(number.to_string());
        rest = after;
        if let Some(inner) = rest.strip_prefix(" (") {
            let (meaning, after) = inner.split_once(')').expect("a parenthesis ends");
            // Of one number, or of those that `and` joins to it.
            let own = bare.split_off(bare.len() - joined(text, &bare));
            entries.extend(std::mem::take(&mut bare).into_iter().map(usual));
            entries.push(Entry::Numbers(own, sentence(meaning)));
            rest = after;
        }
    }
    let rest = rest.strip_prefix("and ").unwrap_or(rest);
    let condition =
        ["if ", "also if ", "for ", "on ", "before "].iter().any(|it| rest.starts_with(it));
    if condition {
        entries.push(Entry::Numbers(bare, sentence(rest)));
        return entries;
    }
    entries.extend(bare.into_iter().map(usual));
    match rest.strip_prefix("as ") {
        Some(others) => entries.push(Entry::Sentence(format!("The errors of {others}."))),
        None if rest.is_empty() => {}
        None => entries.push(Entry::Sentence(sentence(rest))),
    }
    entries
}

/// How many of the last numbers the word `and` joins.
fn joined(text: &str, numbers: &[String]) -> usize {
    let pairs = numbers.windows(2).rev();
    1 + pairs.take_while(|pair| text.contains(&format!("{} and {}", pair[0], pair[1]))).count()
}

/// A number at the beginning, and what follows it.
fn number(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit());
    let (number, rest) = text.split_at(end.unwrap_or(text.len()));
    (number.len() > 2 && number.starts_with('E')).then_some((number, rest))
}

fn usual(number: String) -> Entry {
    let meaning = MEANINGS.iter().find(|(name, _)| *name == number);
    let (_, meaning) = meaning.unwrap_or_else(|| panic!("the header does not say when {number}"));
    Entry::Numbers(vec![number], meaning.to_string())
}

fn sentence(words: &str) -> String {
    let (first, rest) = words.split_at(words.chars().next().map_or(0, char::len_utf8));
    // A name of C keeps its spelling.
    let is_name = words.split(' ').next().is_some_and(|word| word.contains('_'));
    let first = if is_name { first.to_string() } else { first.to_uppercase() };
    format!("{first}{rest}.")
}

#[test]
fn errors_are_read_as_they_are_written() {
    let numbers = |names: &[&str], meaning: &str| {
        Entry::Numbers(names.iter().map(|name| name.to_string()).collect(), meaning.to_string())
    };
    let usual = |name: &str| usual(name.to_string());
    assert_eq!(
        entries("EBADF, EINVAL (not a set), EMFILE."),
        [usual("EBADF"), numbers(&["EINVAL"], "Not a set."), usual("EMFILE")]
    );
    assert_eq!(
        entries("ENOMEM; EMFILE, ENFILE and ENOSPC if the set, too, is full."),
        [usual("ENOMEM"), numbers(&["EMFILE", "ENFILE", "ENOSPC"], "If the set, too, is full.")]
    );
    assert_eq!(
        entries("EACCES and EPERM (it may not be written to), EBADF."),
        [numbers(&["EACCES", "EPERM"], "It may not be written to."), usual("EBADF")]
    );
    assert_eq!(
        entries("EFAULT, and as ws_epoll_ctl(); all others are results."),
        [
            usual("EFAULT"),
            Entry::Sentence("The errors of ws_epoll_ctl().".into()),
            Entry::Sentence("All others are results.".into())
        ]
    );
}
