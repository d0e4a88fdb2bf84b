#!/bin/bash
# First process of a lab node: builds the node's root file system, moves into it, then reaps orphans.
#
# Runs in fresh mount, pid, network, uts and ipc namespaces, so whatever it mounts dies with it.
# The root is a directory of the world with the machine's programs bound read-only below /usr: paths
# such as /var/lib/kubelet or /run/containerd are the node's own, and real manifests fit unchanged.
#
# usage: init.sh NAME ROOT DISKS COMPONENTS
set -euo pipefail
name=$1 root=$2 disks=$3 components=$4

mount --make-rprivate /
mount --bind "$root" "$root"
cd "$root"
mkdir -p dev etc/alternatives mnt opt/lab/bin proc root run sys tmp usr var/lib var/log var/tmp
chmod 1777 tmp var/tmp
ln -sfn /run var/run
for merged in bin lib lib32 lib64 sbin; do
    if [ -L "/$merged" ]; then ln -sfn "$(readlink "/$merged")" "$merged"; fi
done

mount --bind /usr usr
mount -o remount,bind,ro usr
# Debian picks iptables, nft and friends through these links.
mount --bind /etc/alternatives etc/alternatives
mount --bind "$components" opt/lab/bin
mount -o remount,bind,ro opt/lab/bin
mount --rbind /sys sys
# On a machine with firmware tables the kubelet takes its UUID from there, else from /etc/machine-id.
if [ -e sys/class/dmi/id/product_uuid ]; then
    mount --bind etc/product_uuid sys/class/dmi/id/product_uuid
fi
mount -t proc proc proc
mount -t tmpfs -o mode=755 run run

# An own /dev, so that a disk linked into this node's /dev/disk/by-id is on no other node and not on
# the machine. The loop nodes beyond those the kernel made so far must exist before they are needed.
mount -t tmpfs -o mode=755 dev dev
for entry in /dev/*; do
    if [ -b "$entry" ] || [ -c "$entry" ]; then cp -a "$entry" dev/; fi
done
for minor in $(seq 0 255); do
    [ -e "dev/loop$minor" ] || mknod -m 660 "dev/loop$minor" b 7 "$minor"
done
mkdir -p dev/pts dev/shm dev/mqueue dev/disk/by-id
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
mount -t tmpfs -o mode=1777 shm dev/shm
mount -t mqueue mqueue dev/mqueue
ln -sfn pts/ptmx dev/ptmx
ln -sfn /proc/self/fd dev/fd
mount --bind "$disks" dev/disk/by-id

mkdir -p .machine
pivot_root . .machine
cd /
umount -l /.machine
rmdir /.machine
# Bidirectional propagation out of a pod needs a shared root, as systemd has it.
mount --make-rshared /
hostname "$name"
ip link set lo up
sysctl -qw net.ipv4.ip_forward=1

: >/run/lab-ready
sleep infinity &
while :; do wait; done
