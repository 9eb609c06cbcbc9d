package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"forebay/cmd/bbd/config"
	"forebay/rdma/ofi/fi"
)

// want is the configured choice among the machine's fabrics.
func want(f config.Fabric) fi.Want {
	return fi.Want{Provider: f.Provider, Domain: f.Domain, Address: f.Address, Endpoint: fi.EndpointKind(f.Endpoint)}
}

// newFabricCommand returns `bbd fabric`, with the subcommand list.
func newFabricCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "fabric", Short: "Look at the machine's fabrics", Args: cobra.NoArgs}
	var file string
	list := &cobra.Command{
		Use:   "list",
		Short: "Print libfabric's offers on this machine, the daemon's choice, and why",
		Long: "Reads the configuration as the daemon would. The offer that would be taken is marked with *.\n" +
			"Fails where there is none, and in a bbd that was built without libfabric: use bbd-ofi.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(config.Source{Base: config.Default(), File: file, Flags: cmd.Flags()})
			if err != nil {
				return err
			}
			offers, err := fi.List()
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "libfabric %s\n", fi.Version())
			return printOffers(cmd, offers, cfg.Fabric)
		},
	}
	list.Flags().StringVar(&file, "config", "", "YAML file (default "+config.DefaultFile+" if it is there)")
	config.AddFlags(list.Flags())
	cmd.AddCommand(list)
	return cmd
}

func printOffers(cmd *cobra.Command, offers []fi.Offer, f config.Fabric) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, " \tPROVIDER\tDOMAIN\tNETWORK\tADDRESS\tENDPOINTS\tDEVICE\tREGISTRATION\tWHY")
	chosen, verdicts := fi.Choose(offers, want(f))
	for _, v := range verdicts {
		o := v.Offer
		mark, registration := " ", strings.Join(o.Registration, ", ")
		if v.Chosen {
			mark = "*"
		}
		for _, empty := range []*string{&o.Address, &o.Device, &registration} {
			if *empty == "" {
				*empty = "-"
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			mark, o.Provider, o.Domain, o.Fabric, o.Address, o.Endpoint, o.Device, registration, v.Why)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	switch {
	case chosen < 0:
		return fmt.Errorf("none of %d offers would be taken", len(offers))
	case f.OFI == config.OFIOff:
		fmt.Fprintln(cmd.OutOrStdout(), "fabric.ofi is off: none is used")
	case f.OFI == config.OFIAuto && !offers[chosen].Hardware():
		fmt.Fprintln(cmd.OutOrStdout(), "fabric.ofi is auto and this is no hardware: the daemon's own TCP is used")
	}
	return nil
}
