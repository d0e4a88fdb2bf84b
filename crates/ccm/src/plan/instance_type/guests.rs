//! The operating systems by vCenter's names for them.
//!
//! Names have been on Nodes for years, in labels that people select by: they never change. Most are the guest id
//! without `Guest` and `64` at its end, in this spelling; the others are listed with their ids.

pub(super) const NAMES: &str = "\
    almalinux amazonlinux2 amazonlinux3 asianux3 asianux4 asianux5 asianux7 asianux8 asianux9 \
    centos centos6 centos64 centos7 centos8 centos9 coreos debian10 debian11 debian12 \
    debian13 debian4 debian5 debian6 debian7 debian8 debian9 dos eComStation eComStation2 fedora \
    freebsd freebsd11 freebsd12 freebsd13 freebsd14 freebsd15 fusionos kylinlinux mandrake \
    mandriva miraclelinux netware4 netware5 netware6 nld9 oes openServer5 openServer6 opensuse \
    oracleLinux oracleLinux10 oracleLinux6 oracleLinux7 oracleLinux8 oracleLinux9 os2 \
    pardus prolinux rhel10 rhel2 rhel3 rhel4 rhel5 rhel6 rhel7 rhel8 rhel9 rockylinux sjds sles \
    sles10 sles11 sles12 sles15 sles16 sles64 solaris10 solaris11 solaris6 solaris7 solaris8 \
    solaris9 suse turbolinux ubuntu unixware7 vmkernel vmkernel5 vmkernel6 vmkernel65 vmkernel7 \
    vmkernel8 vmkernel9 win2000advserv win2000pro win2000serv win31 win95 win98 windowshyperv \
    winlonghorn winme winnetbusiness winnetdatacenter winnetenterprise winnetstandard winnetweb \
    winnt winvista winxphome winxppro";

pub(super) const OTHER_NAMES: &[(&str, &str)] = &[
    (
        "darwin",
        "darwin darwin10 darwin11 darwin12 darwin13 darwin14 darwin15 darwin16 darwin17 darwin18 \
         darwin19 darwin20 darwin21 darwin22 darwin23",
    ),
    (
        "linux",
        "genericLinux other24xLinux other26xLinux other3xLinux otherLinux other4xLinux \
         other5xLinux other6xLinux other7xLinux",
    ),
    ("other", "other otherGuest"),
    ("rhel", "redhat"),
    ("photon", "vmwarePhoton"),
    ("win7", "windows7"),
    ("win7server", "windows7Server"),
    ("win8", "windows8"),
    ("win8server", "windows8Server"),
    ("win10", "windows9"),
    ("win10server", "windows9Server"),
    ("crxpod", "crxPod1"),
    ("crxsys", "crxSys1"),
    ("win11", "windows11"),
    ("win12", "windows12"),
    ("win2019server", "windows2019srv"),
    ("win2022server", "windows2019srvNext"),
    ("win2025server", "windows2022srvNext"),
];
