//! The image's recipe and the pod's manifest, as far as they can be held against what is here:
//! building an image takes a registry.

use std::process::Command;

use super::{root, text};

/// What a fence of this language holds.
fn fenced<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let opening = format!("```{language}\n");
    let blocks = page.split(opening.as_str()).skip(1);
    blocks.map(|block| block.split("\n```").next().expect("its end")).collect()
}

#[test]
fn the_manifest_has_what_the_program_prints() {
    let guide = text("docs/guide-operators.md");
    let [manifest] = fenced(&guide, "yaml")[..] else { panic!("one manifest") };
    let (init, main) = manifest.split_once("\n  containers:\n").expect("containers");
    assert!(init.contains("\n    args: [\"copy-library\", \"/wakeset\"]\n"), "{init}");
    for part in [init, main] {
        assert!(part.contains("\n      mountPath: /wakeset"), "{part}");
    }
    let mut env = Command::new(env!("CARGO_BIN_EXE_wakeset"));
    env.args(["env", "--format", "kubernetes", "--library", "/wakeset/libwakeset_preload.so"]);
    let printed = String::from_utf8(env.output().expect("wakeset runs").stdout).expect("text");
    let indented: String = printed.lines().map(|line| format!("\n    {line}")).collect();
    assert!(format!("{main}\n").contains(&indented), "{indented}\nis not in\n{main}");
}

#[test]
fn the_image_is_made_of_what_is_here() {
    let recipe = text("packaging/oci/Containerfile");
    let toolchain = text("rust-toolchain.toml");
    let (_, channel) = toolchain.split_once("channel = \"").expect("a channel");
    let version = channel.split("\"").next().expect("a version").trim_end_matches(".0");
    assert!(recipe.contains(&format!("\nFROM rust:{version}-")), "Rust {version} in {recipe}");
    let recipe = recipe.replace("\\\n", " ");
    let mut copied = 0;
    for line in recipe.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let words: Vec<_> = line.split_whitespace().collect();
        let known = ["FROM", "RUN", "WORKDIR", "COPY", "ENTRYPOINT"];
        assert!(known.contains(&words[0]), "{line}");
        // From the source; what an earlier stage has made is known when the image is built.
        if words[0] == "COPY" && !words[1].starts_with("--") {
            for file in &words[1..words.len() - 1] {
                assert!(root().join(file).exists(), "{line}");
                copied += 1;
            }
        }
    }
    assert!(copied >= 1, "nothing is copied from the source");
}
