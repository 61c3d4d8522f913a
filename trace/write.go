package trace

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/muster-gpu/muster/cluster"
)

// Create writes the workload to path: JSON lines, or the basic columns if the name ends in .csv;
// compressed if it (then) ends in .gz or .zst. It writes atomically.
func Create(path string, wl *Workload) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".muster-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			tmp.Close()           // closed before on success; the error does not matter
			os.Remove(tmp.Name()) // already renamed on success
		}
	}()
	if err = writeTo(tmp, path, wl); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err = tmp.Chmod(0o644); err != nil {
		return err
	}
	if err = tmp.Sync(); err != nil {
		return err
	}
	if err = tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

func writeTo(w io.Writer, path string, wl *Workload) error {
	write := WriteJSONL
	if strings.HasSuffix(stem(path), ".csv") {
		write = WriteCSV
	}
	switch filepath.Ext(path) {
	case ".gz":
		z := gzip.NewWriter(w)
		if err := write(z, wl); err != nil {
			return err
		}
		return z.Close()
	case ".zst":
		z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return err
		}
		if err := write(z, wl); err != nil {
			z.Close() // the first error is reported
			return err
		}
		return z.Close()
	}
	return write(w, wl)
}

// csvHeader names the basic columns; csvFormat reads them back.
const csvHeader = "name,user,queue,kind,tier,submit_s,run_s,gpus,gpu_milli,limit_s,estimate_s,deadline_s,model,gpu_types,outcome"

// WriteCSV writes the basic columns, for spreadsheets: times and durations in
// seconds, gpu_milli the share of each GPU, GPU types joined by "|". Several
// task sets, topology, elasticity, checkpoints and dependencies are not in it.
func WriteCSV(w io.Writer, wl *Workload) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, csvHeader)
	for i := range wl.Jobs {
		e := &wl.Jobs[i]
		j := &e.Job
		share := cluster.Whole
		if len(j.Tasks) > 0 && j.Tasks[0].Request.Fractional() {
			share = j.Tasks[0].Request.Share
		}
		fields := []string{csvField(j.Name), csvField(j.User), csvField(j.Queue), j.Kind.String(), j.Tier.String(),
			seconds(time.Duration(j.Submit)), seconds(e.Lifetime()), strconv.Itoa(j.GPUs()),
			strconv.FormatInt(share, 10),
			seconds(j.Limit), seconds(j.Estimate), seconds(time.Duration(j.Deadline)), csvField(j.Model),
			csvField(strings.Join(j.GPUTypes, "|")), e.Outcome.String()}
		if _, err := fmt.Fprintln(out, strings.Join(fields, ",")); err != nil {
			return err
		}
	}
	return out.Flush()
}

// csvField quotes a field if RFC 4180 requires it.
func csvField(s string) string {
	if strings.ContainsAny(s, ",\"\r\n") || s != strings.TrimSpace(s) {
		return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
	}
	return s
}

// seconds formats a duration as exact decimal seconds; 0 is "0", because an empty field means that
// there is none.
func seconds(d time.Duration) string {
	whole, frac := d/time.Second, d%time.Second
	if frac == 0 {
		return strconv.FormatInt(int64(whole), 10)
	}
	return strings.TrimRight(fmt.Sprintf("%d.%09d", whole, frac), "0")
}
