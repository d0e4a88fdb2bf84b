//! The commands as people use them, and misuse them. Tests below `nodes::` need root.

use std::process::{Command, Output};

const XTASK: &str = env!("CARGO_BIN_EXE_xtask");

struct Answer {
    code: Option<i32>,
    out: String,
    err: String,
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

#[track_caller]
fn expect(answer: &Answer, code: i32, says: &[&str]) {
    let all = format!("{}{}", answer.out, answer.err);
    assert_eq!(answer.code, Some(code), "{all}");
    for words in says {
        assert!(all.contains(words), "{words:?} is not in:\n{all}");
    }
}

#[test]
fn an_unknown_subcommand_is_named_with_its_nearest_neighbour() {
    let answer = Command::new(XTASK).args(["lab", "stauts"]).output().unwrap().into();
    expect(&answer, 2, &["unrecognized subcommand 'stauts'", "status"]);
}

#[test]
fn a_corpus_is_a_folder_of_one_program_s_files() {
    let dir = tempfile::tempdir().unwrap();
    let corpus = |dir: &std::path::Path| -> Answer {
        Command::new(XTASK).arg("corpus").arg(dir).output().unwrap().into()
    };
    expect(&corpus(dir.path()), 1, &["neither a folder csi-conf nor a folder ccm-conf"]);
    let folder = dir.path().join("csi-conf");
    expect(&corpus(&folder), 1, &["cannot read", "csi-conf"]);
    std::fs::create_dir(&folder).unwrap();
    expect(&corpus(&folder), 1, &["cannot read", "expected/csi.jsonl"]);
}

#[test]
fn a_lab_without_root_says_so_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    // The checkout may be closed to other users; the program itself needs nothing from it.
    let copy = dir.path().join("xtask");
    std::fs::copy(XTASK, &copy).unwrap();
    let mut command = Command::new(&copy);
    if rustix::process::getuid().is_root() {
        lab::run(Command::new("chmod").arg("755").arg(dir.path())).unwrap();
        command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&copy);
    }
    let answer = command
        .env("VSPHERE_LAB_DIR", dir.path().join("state"))
        .args(["lab", "up"])
        .output()
        .unwrap()
        .into();
    expect(&answer, 3, &["this machine cannot run a lab with nodes", "run the command as root"]);
    assert!(!dir.path().join("state").exists(), "something was started");
}

mod nodes {
    use super::*;

    /// In a mount and network namespace of its own the machine's ports and packages are ours to take.
    fn isolated(script: &str, state: &std::path::Path) -> anyhow::Result<Answer> {
        let mut command = Command::new("unshare");
        command.args([
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--",
            "bash",
            "-c",
        ]);
        command
            .arg(format!("ip link set lo up\n{script}"))
            .env("XTASK", XTASK)
            .env("VSPHERE_LAB_DIR", state);
        command.env("AGNHOST", lab::components::binary("agnhost")?);
        Ok(command.output()?.into())
    }

    #[test]
    fn make_lab_starts_a_cluster_that_lasts_until_it_is_taken_down() {
        let state = tempfile::tempdir().unwrap();
        let script = r#"
            set -e
            (exec $XTASK lab up)           # the supervisor outlives its caller
            export KUBECONFIG=$VSPHERE_LAB_DIR/lab/kubeconfig
            eval "$($XTASK lab status | grep 'export PATH')"
            kubectl get nodes
            $XTASK lab status
            $XTASK lab vcenter
            code=0; $XTASK lab up || code=$?
            echo "second lab: $code"
            $XTASK lab down
            $XTASK lab status
            $XTASK lab down
            code=0; $XTASK lab vcenter || code=$?
            echo "vcenter of no lab: $code"
        "#;
        let answer = isolated(script, state.path()).unwrap();
        let says = [
            "The lab is up.",
            "export KUBECONFIG=",
            "node-1   Ready",
            "node-2   Ready",
            "kube-apiserver            running   v1.36.3",
            "node-2/kubelet",
            "/dc-1/vm/k8s/node-1",
            "armed faults: none",
            "a lab is running already",
            "second lab: 4",
            "The lab is gone",
            "No lab is running; `make lab` starts one.",
            "No lab is running.\n",
            "no lab is running; `make lab` starts one\n",
            "vcenter of no lab: 1",
        ];
        expect(&answer, 0, &says);
        assert_eq!(
            std::fs::read_dir(state.path()).map_or(0, Iterator::count),
            0,
            "files were left"
        );
    }

    #[test]
    fn a_port_in_use_is_named_with_a_way_out() {
        let state = tempfile::tempdir().unwrap();
        let script = r"
            $AGNHOST netexec --http-port=21000 &
            for attempt in $(seq 600); do
                if ss -ltn | grep -q 21000; then exec $XTASK lab up; fi
                sleep 0.1
            done
            echo 'nothing listens on the port'
        ";
        let answer = isolated(script, state.path()).unwrap();
        expect(&answer, 1, &["port 21000 on 127.0.0.1 is in use by another program", "ss -ltnp"]);
    }

    #[test]
    fn a_package_that_cannot_be_installed_is_named_with_the_command() {
        let state = tempfile::tempdir().unwrap();
        let script = "mount -t tmpfs none /usr/lib/cni; PATH=/nowhere exec $XTASK lab up";
        let answer = isolated(script, state.path()).unwrap();
        let says = [
            "the lab needs these packages: containernetworking-plugins",
            "apt-get install containernetworking-plugins",
        ];
        expect(&answer, 1, &says);
    }

    #[test]
    fn a_machine_without_cgroups_is_refused_before_anything_starts() {
        let state = tempfile::tempdir().unwrap();
        let script = "umount -l -R /sys/fs/cgroup 2>/dev/null; mount -t tmpfs none /sys/fs/cgroup; exec $XTASK lab up";
        let answer = isolated(script, state.path()).unwrap();
        expect(&answer, 3, &["no cgroup hierarchy", "mount -t cgroup2"]);
        assert_eq!(
            std::fs::read_dir(state.path()).map_or(0, Iterator::count),
            0,
            "something was started"
        );
    }
}
