# The public functions, and the modules that define them. The package reads this file to find them.

from streamvault.demo.tour import run_demo as run_demo
from streamvault.exporter.convert.convert import convert_archive as convert_archive
from streamvault.exporter.export import export_stream as export_stream
from streamvault.exporter.forecast.forecast import plan_archive as plan_archive
from streamvault.importer.import_ import import_stream as import_stream
from streamvault.joining.append import append_streams as append_streams
from streamvault.joining.join import join_streams as join_streams
from streamvault.lake.handoff import table_ddl as table_ddl
from streamvault.lake.handoff import write_table as write_table
from streamvault.lake.read import read_archive as read_archive
from streamvault.manager.ephemeral import ephemeral_stream as ephemeral_stream
from streamvault.manager.listing import list_streams as list_streams
from streamvault.manager.manager import StreamManager as StreamManager
from streamvault.manager.sweep import sweep_scope as sweep_scope
from streamvault.manifests.verbs.check import check_archive as check_archive
from streamvault.manifests.verbs.delete import delete_archive as delete_archive
from streamvault.manifests.verbs.get import get_event as get_event
from streamvault.manifests.verbs.hold import hold_archive as hold_archive
from streamvault.manifests.verbs.hold import release_archive as release_archive
from streamvault.manifests.verbs.show import list_archives as list_archives
from streamvault.manifests.verbs.show import show_archive as show_archive
from streamvault.manifests.verbs.show import show_timeline as show_timeline
from streamvault.manifests.verbs.warm import warm_archive as warm_archive
from streamvault.mirrors.copy import copy_stream as copy_stream
from streamvault.mirrors.move import move_stream as move_stream
from streamvault.mirrors.promote import promote_replica as promote_replica
from streamvault.mirrors.replicate import replicate_stream as replicate_stream
from streamvault.mirrors.translate import translate as translate
from streamvault.report.doctor import check_setup as check_setup
from streamvault.report.write import write_report as write_report
from streamvault.requests.request import request_restore as request_restore
from streamvault.requests.show import drop_failed as drop_failed
from streamvault.requests.show import retry_failed as retry_failed
from streamvault.requests.show import show_queue as show_queue
from streamvault.requests.show import skip_foreign as skip_foreign
from streamvault.requests.work import work_queue as work_queue
from streamvault.rotation.compact.compact import compact_archive as compact_archive
from streamvault.rotation.follow import follow_stream as follow_stream
from streamvault.rotation.rotate import rotate_stream as rotate_stream
from streamvault.scopes.status import show_status as show_status

__version__: str
