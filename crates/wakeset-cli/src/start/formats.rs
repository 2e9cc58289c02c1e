//! The variables in the words of who reads them. Values are on one line.

use super::Variable;

/// Who reads it.
#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
pub enum Format {
    /// A POSIX shell, by `eval`
    Sh,
    /// The shell fish, by `source`
    Fish,
    /// `docker run --env-file`, podman too
    Docker,
    /// A Dockerfile or Containerfile
    Dockerfile,
    /// A container's entry in a manifest of Kubernetes
    Kubernetes,
}

impl Format {
    /// Whether a shell that is running reads it, with what it has in its environment.
    pub fn is_shell(self) -> bool {
        matches!(self, Format::Sh | Format::Fish)
    }

    /// The text.
    pub fn text(self, variables: &[Variable]) -> String {
        let lines: String = variables.iter().map(|(name, value)| self.line(name, value)).collect();
        match self {
            Format::Kubernetes => format!("env:\n{lines}"),
            _ => lines,
        }
    }

    fn line(self, name: &str, value: &str) -> String {
        match self {
            Format::Sh => format!("export {name}='{}'\n", value.replace('\'', r"'\''")),
            Format::Fish => {
                format!("set -gx {name} '{}'\n", escaped(value, &['\\', '\'']))
            }
            // Taken as it is, to the end of the line.
            Format::Docker => format!("{name}={value}\n"),
            Format::Dockerfile => {
                format!("ENV {name}=\"{}\"\n", escaped(value, &['\\', '"', '$']))
            }
            Format::Kubernetes => {
                // Kubernetes replaces `$(NAME)`, and takes `$$` for `$`. A JSON string is a YAML
                // one.
                let value = serde_json::Value::from(value.replace('$', "$$"));
                format!("- name: {name}\n  value: {value}\n")
            }
        }
    }
}

/// The text with a backslash before each of these.
pub fn escaped(text: &str, special: &[char]) -> String {
    let mut result = String::new();
    for c in text.chars() {
        if special.contains(&c) {
            result.push('\\');
        }
        result.push(c);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_as_each_reader_unquotes_them() {
        let text = |format: Format| format.text(&[("NAME", r#"/a'b"c$d\e"#.to_string())]);
        assert_eq!(text(Format::Sh), "export NAME='/a'\\''b\"c$d\\e'\n");
        assert_eq!(text(Format::Fish), "set -gx NAME '/a\\'b\"c$d\\\\e'\n");
        assert_eq!(text(Format::Docker), "NAME=/a'b\"c$d\\e\n");
        assert_eq!(text(Format::Dockerfile), "ENV NAME=\"/a'b\\\"c\\$d\\\\e\"\n");
        assert_eq!(
            text(Format::Kubernetes),
            "env:\n- name: NAME\n  value: \"/a'b\\\"c$$d\\\\e\"\n"
        );
    }
}
