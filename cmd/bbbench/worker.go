package main

import (
	"os"

	"github.com/spf13/cobra"

	"forebay/cmd/bbbench/datapath"
	"forebay/cmd/bbbench/latency"
	"forebay/cmd/bbbench/mounted"
	"forebay/cmd/bbbench/process"
	"forebay/cmd/bbbench/stores"
	"forebay/cmd/bbbench/testbed"
)

func newWorkerCommand() *cobra.Command {
	var w testbed.Writer
	var streams, files int
	var provider string
	cmd := &cobra.Command{
		Use: "worker KIND", Hidden: true, Args: cobra.ExactArgs(1), SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case process.WorkEcho:
				return latency.Echo(os.NewFile(3, "socket"))
			case process.WorkEchoNet:
				return latency.EchoNet(os.NewFile(3, "socket"))
			case process.WorkWrite:
				return w.Serve(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
			case process.WorkStream:
				return datapath.Streamer{Address: w.Address, Streams: streams, Bytes: w.Bytes}.Serve(cmd.InOrStdin(), cmd.OutOrStdout())
			case process.WorkTarget:
				return datapath.ServeTarget(cmd.Context(), provider, w.Bytes, cmd.OutOrStdout())
			case process.WorkRaw:
				return datapath.ServeRaw(w.Bytes, cmd.OutOrStdout())
			case process.WorkFiles:
				return mounted.ServeFiles(files, cmd.InOrStdin(), cmd.OutOrStdout())
			case process.WorkUser:
				return stores.ServeUser(cmd.Context(), w, files, cmd.InOrStdin(), cmd.OutOrStdout())
			default:
				return testbed.Invalid("worker", args[0], "there is no such kind")
			}
		},
	}
	cmd.Flags().StringVar(&w.Address, "address", "", "of the daemon, or of the other end of streams")
	cmd.Flags().IntVar(&streams, "streams", 1, "TCP connections")
	cmd.Flags().IntVar(&files, "files", 1, "of a user, or operations on files")
	cmd.Flags().StringVar(&provider, "provider", "", "of one-sided operations")
	cmd.Flags().StringVar(&w.Buffer, "buffer", "", "to write to")
	cmd.Flags().Int64Var(&w.Bytes, "bytes", 0, "of each file, or each time")
	cmd.Flags().Int64Var(&w.Source, "source", 0, "bytes of memory to write from")
	return cmd
}
