package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/spelling"
)

// argument is what a command's first argument names.
type argument uint8

const (
	noArgument argument = iota
	tableArgument
	namespaceArgument
	commandArgument
)

// commandInfo is one command of the shell.
type commandInfo struct {
	name      string
	alias     string
	group     string
	min, max  int // arguments; max -1 = any number
	first     argument
	families  bool // its strings name families, not columns
	reference bool // returns a table that a variable can hold
	servers   bool // is about HBase's servers: of a real HBase, what the store cannot do HBase's shell does
	onlyHBase bool // a real HBase does it in its own shell alone, whatever is named
	options   []string
	summary   string                                // one line; of a command that Sluice has not, what to do instead
	examples  string                                // lines of the shell, tried by a test
	run       func(*session, []any) (string, error) // nil = Sluice has it not
}

func (c *commandInfo) arity() string {
	switch {
	case c.max < 0:
		return strconv.Itoa(c.min) + "+"
	case c.min == c.max:
		return strconv.Itoa(c.min)
	}
	return fmt.Sprintf("%d..%d", c.min, c.max)
}

// commandTable is the commands in the order of help: by group, then by name.
type commandTable []*commandInfo

// group is commands of one purpose, as HBase's help groups them.
type group struct {
	name, purpose string
	commands      func() []*commandInfo
}

func groups() []group {
	return []group{
		{"general", "the shell and the store", generalCommands},
		{"namespace", "groups of tables", namespaceCommands},
		{"ddl", "tables and their schemas", tableCommands},
		{"dml", "rows and cells", func() []*commandInfo { return slices.Concat(readCommands(), counterCommands(), writeCommands()) }},
		{"tools", "regions and storage", regionCommands},
	}
}

// notBuilt is the group of HBase's commands that Sluice has not.
const notBuilt = "not in Sluice"

func groupNames() []string {
	var names []string
	for _, g := range groups() {
		names = append(names, g.name)
	}
	return names
}

// newCommandTable returns every command. It is a function, not a variable, because
// help refers back to it.
func newCommandTable() commandTable {
	var t commandTable
	for _, g := range groups() {
		list := g.commands()
		slices.SortFunc(list, func(a, b *commandInfo) int { return strings.Compare(a.name, b.name) })
		for _, c := range list {
			c.group = g.name
			t = append(t, c)
		}
	}
	for _, a := range absentCommands {
		for _, name := range strings.Fields(a.names) {
			t = append(t, &commandInfo{name: name, group: notBuilt, max: -1, summary: a.instead})
		}
	}
	return t
}

// find returns the command with this name or alias, or nil.
func (t commandTable) find(name string) *commandInfo {
	for _, c := range t {
		if c.name == name || c.alias == name && name != "" {
			return c
		}
	}
	return nil
}

// names returns the names of the commands that run, aliases included.
func (t commandTable) names() []string {
	var names []string
	for _, c := range t {
		if c.run == nil {
			continue
		}
		names = append(names, c.name)
		if c.alias != "" {
			names = append(names, c.alias)
		}
	}
	return names
}

// didYouMean asks whether the command nearest to name was meant; "" where none is near.
func (t commandTable) didYouMean(name string) string { return spelling.Aside(name, t.names()) }

// absentCommands are commands of HBase 2.6's shell that Sluice has not, with why,
// or what to do instead.
var absentCommands = []struct{ names, instead string }{
	{"snapshot clone_snapshot restore_snapshot delete_snapshot delete_all_snapshot delete_table_snapshots list_snapshots list_table_snapshots snapshot_cleanup_enabled snapshot_cleanup_switch", "there are no named snapshots; an export is the table at one commit: 'export run'"},
	{"balancer balance_switch balancer_enabled balance_rsgroup get_balancer_decisions get_balancer_rejections", "one process serves every region: there is nothing to balance"},
	{"assign unassign move close_region", "one process serves every region: none can move"},
	{"stop_master stop_regionserver list_deadservers clear_deadservers decommission_regionservers recommission_regionserver list_decommissioned_regionservers list_liveservers list_unknownservers is_in_maintenance_mode rit", "one process is the whole store; SIGTERM ends 'ingest run'"},
	{"catalogjanitor_enabled catalogjanitor_run catalogjanitor_switch cleaner_chore_enabled cleaner_chore_run cleaner_chore_switch hbck_chore_run regioninfo flush_master_store", "a split or merge is one commit: there is nothing to clean up or repair after it"},
	{"wal_roll zk_dump trace clear_block_cache clear_compaction_queues clear_slowlog_responses get_largelog_responses get_slowlog_responses compact_rs truncate_region", "it is about a region server, which Sluice has not; see /metrics of 'ingest run'"},
	{"compaction_state", "major_compact is done when it returns; the store's own rewrites are in /metrics of 'ingest run'"},
	{"splitormerge_enabled splitormerge_switch normalizer_enabled normalizer_switch normalize compaction_switch", "alter a table's SPLIT_ENABLED, MERGE_ENABLED, NORMALIZATION_ENABLED or COMPACTION_ENABLED"},
	{"processlist list_procedures list_locks abort_procedure", "changes of tables are one commit each, not procedures"},
	{"add_peer remove_peer list_peers list_peer_configs update_peer_config enable_peer disable_peer set_peer_replicate_all set_peer_serial set_peer_namespaces append_peer_namespaces remove_peer_namespaces set_peer_exclude_namespaces append_peer_exclude_namespaces remove_peer_exclude_namespaces set_peer_tableCFs show_peer_tableCFs append_peer_tableCFs remove_peer_tableCFs set_peer_exclude_tableCFs append_peer_exclude_tableCFs remove_peer_exclude_tableCFs set_peer_bandwidth get_peer_config list_replicated_tables enable_table_replication disable_table_replication transit_peer_sync_replication_state peer_modification_enabled peer_modification_switch", "there is no replication; what came from Kafka can be ingested a second time elsewhere"},
	{"grant revoke user_permission list_security_capabilities", "there are no permissions within a store; files and the API's token guard it"},
	{"add_labels list_labels set_auths get_auths clear_auths set_visibility", "there are no visibility labels"},
	{"set_quota list_quotas list_quota_table_sizes list_quota_snapshots list_snapshot_sizes enable_rpc_throttle disable_rpc_throttle enable_exceed_throttle_quota disable_exceed_throttle_quota", "there are no quotas"},
	{"add_rsgroup remove_rsgroup rename_rsgroup get_rsgroup list_rsgroups move_servers_rsgroup move_tables_rsgroup move_namespaces_rsgroup move_servers_tables_rsgroup move_servers_namespaces_rsgroup get_server_rsgroup get_table_rsgroup get_namespace_rsgroup remove_servers_rsgroup show_rsgroup_config alter_rsgroup_config update_rsgroup_config", "one process serves every region: there are no server groups"},
	{"update_config update_all_config", "the configuration is the YAML file; start 'ingest run' anew"},
	{"change_sft change_sft_all", "HBase's store file tracker has no counterpart"},
}
