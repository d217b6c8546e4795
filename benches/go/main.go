// Throughput pipelines in the Go SDK for a portable Beam runner; baseline.py --sdk go starts the runner and measures it.
//
//	gobench --case gbk --n 1000000 --keys 10000 --runner=universal --endpoint localhost:8073 --environment_type=LOOPBACK
//
// Prints "RESULT {json}" with what it took. Every case checks its own result.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/io/textio"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/register"
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/runners/universal"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/transforms/stats"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/x/beamx"
)

var (
	kase = flag.String("case", "gbk", "wordcount|map5|gbk|large|combine|reshuffle|side_dict|side_multimap")
	n    = flag.Int64("n", 1000000, "elements")
	keys = flag.Int64("keys", 10000, "distinct keys")
	text = flag.String("text", "", "input file for wordcount")
)

const seeds = 1000

type genFn struct{ Per int64 }

func (f *genFn) ProcessElement(seed int64, emit func(int64)) {
	for i := seed * f.Per; i < (seed+1)*f.Per; i++ {
		emit(i)
	}
}

type genKVFn struct{ Per, Keys int64 }

func (f *genKVFn) ProcessElement(seed int64, emit func(int64, int64)) {
	for i := seed * f.Per; i < (seed+1)*f.Per; i++ {
		emit(i*7919%f.Keys, i)
	}
}

// A value of the case "large" has this many bytes.
const largeBytes = 1000

type genLargeFn struct{ Per, Keys int64 }

func (f *genLargeFn) ProcessElement(seed int64, emit func(int64, []byte)) {
	for i := seed * f.Per; i < (seed+1)*f.Per; i++ {
		emit(i*7919%f.Keys, bytes.Repeat([]byte(fmt.Sprintf("%020d", i)), largeBytes/20))
	}
}

func lengths(k int64, vs func(*[]byte) bool) int64 {
	var s int64
	var v []byte
	for vs(&v) {
		s += int64(len(v))
	}
	return s
}

func inc(v int64) int64 { return v + 1 }

func sumGroup(k int64, vs func(*int64) bool) int64 {
	var s, v int64
	for vs(&v) {
		s += v
	}
	return s
}

func value(k, v int64) int64 { return v }

func split(line string, emit func(string)) {
	for _, w := range strings.Fields(line) {
		emit(w)
	}
}

func count(w string, c int) int64 { return int64(c) }

func sideKV(k int64) (int64, int64) { return k, k * 2 }

func lookup(k, v int64, side func(int64) func(*int64) bool, emit func(int64)) {
	var x int64
	if side(k)(&x) {
		emit(x)
	}
}

type dictFn struct{ m map[int64]int64 }

func (f *dictFn) StartBundle(_ func(*int64, *int64) bool, _ func(int64)) { f.m = nil }

func (f *dictFn) ProcessElement(k, v int64, side func(*int64, *int64) bool, emit func(int64)) {
	if f.m == nil {
		f.m = map[int64]int64{}
		var a, b int64
		for side(&a, &b) {
			f.m[a] = b
		}
	}
	emit(f.m[k])
}

type checkFn struct{ Want int64 }

func (f *checkFn) ProcessElement(got int64) error {
	if got != f.Want {
		return fmt.Errorf("wrong result: got %d, want %d", got, f.Want)
	}
	return nil
}

func init() {
	register.DoFn2x0[int64, func(int64)](&genFn{})
	register.DoFn2x0[int64, func(int64, int64)](&genKVFn{})
	register.DoFn2x0[int64, func(int64, []byte)](&genLargeFn{})
	register.DoFn4x0[int64, int64, func(*int64, *int64) bool, func(int64)](&dictFn{})
	register.DoFn1x1[int64, error](&checkFn{})
	register.Function1x1(inc)
	register.Function2x1(sumGroup)
	register.Function2x1(lengths)
	register.Function2x1(value)
	register.Function2x0(split)
	register.Function2x1(count)
	register.Function1x2(sideKV)
	register.Function4x0(lookup)
	register.Emitter1[int64]()
	register.Emitter1[string]()
	register.Emitter2[int64, int64]()
	register.Emitter2[int64, []byte]()
	register.Iter1[int64]()
	register.Iter1[[]byte]()
	register.Iter2[int64, int64]()
}

func ints(m int64) []int64 {
	r := make([]int64, m)
	for i := range r {
		r[i] = int64(i)
	}
	return r
}

func build(s beam.Scope) {
	if *kase == "wordcount" {
		counts := beam.ParDo(s, count, stats.Count(s, beam.ParDo(s, split, textio.Read(s, *text))))
		beam.ParDo0(s, &checkFn{words(*text)}, stats.Sum(s, counts))
		return
	}
	per := *n / seeds
	total := per * seeds
	in := beam.Reshuffle(s, beam.CreateList(s, ints(seeds)))
	tri := total * (total - 1) / 2
	var out beam.PCollection
	var want int64
	switch *kase {
	case "map5":
		out = beam.ParDo(s, &genFn{per}, in)
		for i := 0; i < 5; i++ {
			out = beam.ParDo(s, inc, out)
		}
		want = tri + 5*total
	case "reshuffle":
		out = beam.Reshuffle(s, beam.ParDo(s, &genFn{per}, in))
		want = tri
	case "large":
		out = beam.ParDo(s, lengths, beam.GroupByKey(s, beam.ParDo(s, &genLargeFn{per, *keys}, in)))
		want = total * largeBytes
	default:
		kv := beam.ParDo(s, &genKVFn{per, *keys}, in)
		switch *kase {
		case "gbk":
			out = beam.ParDo(s, sumGroup, beam.GroupByKey(s, kv))
			want = tri
		case "combine":
			out = beam.ParDo(s, value, stats.SumPerKey(s, kv))
			want = tri
		case "side_multimap", "side_dict":
			side := beam.ParDo(s, sideKV, beam.CreateList(s, ints(*keys)))
			for i := int64(0); i < total; i++ {
				want += i * 7919 % *keys * 2
			}
			if *kase == "side_multimap" {
				out = beam.ParDo(s, lookup, kv, beam.SideInput{Input: side})
			} else {
				out = beam.ParDo(s, &dictFn{}, kv, beam.SideInput{Input: side})
			}
		default:
			panic("unknown case " + *kase)
		}
	}
	beam.ParDo0(s, &checkFn{want}, stats.Sum(s, out))
}

func words(path string) int64 {
	data, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	return int64(len(strings.Fields(string(data))))
}

func cpu() float64 {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}

func main() {
	flag.Parse()
	beam.Init()
	p, s := beam.NewPipelineWithRoot()
	build(s)
	t, c := time.Now(), cpu()
	if _, err := beamx.RunWithMetrics(context.Background(), p); err != nil {
		fmt.Fprintln(os.Stderr, "FAILED:", err)
		os.Exit(1)
	}
	b, _ := json.Marshal(map[string]any{
		"wall_s": time.Since(t).Seconds(), "sdk_cpu_s": cpu() - c, "state": "DONE"})
	fmt.Println("RESULT " + string(b))
}
