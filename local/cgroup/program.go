//go:build linux

package cgroup

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// denyByProgram attaches a program to a group of version 2 that refuses some
// character devices and leaves the others to the groups above (linux/bpf.h,
// bpf_cgroup_dev_ctx: access and type, major, minor).
func denyByProgram(dir string, list []Device) error {
	const typeMask = 0xffff // the upper half is the access
	code := asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), asm.And.Imm(asm.R2, typeMask),
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word), asm.LoadMem(asm.R4, asm.R1, 8, asm.Word),
		asm.JNE.Imm(asm.R2, unix.BPF_DEVCG_DEV_CHAR, "allow"),
	}
	for i, d := range list {
		next := fmt.Sprintf("next%d", i)
		code = append(code, asm.JNE.Imm(asm.R3, int32(d.Major), next), asm.JNE.Imm(asm.R4, int32(d.Minor), next),
			asm.Mov.Imm(asm.R0, 0), asm.Return(), asm.Mov.Imm(asm.R0, 1).WithSymbol(next))
	}
	code = append(code, asm.Mov.Imm(asm.R0, 1).WithSymbol("allow"), asm.Return())
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.CGroupDevice, Instructions: code, License: "Apache"})
	if err != nil {
		return fmt.Errorf("the program that refuses devices: %w", err)
	}
	defer prog.Close()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = link.RawAttachProgram(link.RawAttachProgramOptions{Target: fd, Program: prog, Attach: ebpf.AttachCGroupDevice,
		Flags: unix.BPF_F_ALLOW_MULTI})
	return errors.Join(err, unix.Close(fd))
}
