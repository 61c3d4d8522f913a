//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// kubeProgram schedules a Kubernetes cluster. It lies beside muster.
const kubeProgram = "muster-kube"

// newKube becomes the program that schedules a Kubernetes cluster.
func newKube() *cobra.Command {
	return &cobra.Command{
		Use:   "kube",
		Short: "Schedule pods on a Kubernetes cluster (docs/guide/kubernetes.md)",
		Long: "Starts " + kubeProgram +
			", which lies beside muster, with the same arguments: an independent scheduler for pods with\n" +
			"schedulerName: muster. muster kube --help lists its flags.",
		Example:            "  muster kube --kubeconfig ~/.kube/config --config kube.yaml",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			exe, err := os.Executable()
			if err != nil {
				return err
			}
			program := filepath.Join(filepath.Dir(exe), kubeProgram)
			err = unix.Exec(program, append([]string{program}, args...), os.Environ())
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s is not beside muster: make build makes both", program)
			}
			return fmt.Errorf("%s: %w", program, err)
		},
	}
}
