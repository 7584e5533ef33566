import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.admin.ReaderGroupManager;
import io.pravega.client.stream.EventRead;
import io.pravega.client.stream.EventStreamReader;
import io.pravega.client.stream.ReaderConfig;
import io.pravega.client.stream.ReaderGroup;
import io.pravega.client.stream.ReaderGroupConfig;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.impl.UTF8StringSerializer;

import java.net.URI;
import java.util.ArrayList;
import java.util.List;

/**
 * Reads a stream of texts with a reader group that stays.
 *
 * Arguments: controller URI, scope, stream, group, and steps, done one after the other:
 * create           makes the group, as an application does whenever it starts
 * read:R:N         reader R reads until it has N events, or until there is nothing for 5 s
 * await:R:N        the same, but for a minute
 * checkpoints:R:N  reader R reads slowly until it has passed N checkpoints
 * close:R          reader R leaves the group and its position in it
 * lose:R           reader R is forgotten, as if its process were killed
 * offline:R        tells the group that R was lost
 * halt             ends this process at once
 * delete           deletes the group
 * Prints each event, its pointer, a blank, its text; "checkpoint R" once a reader's position is in the group; and
 * "done STEP" after each step.
 */
public class ReaderGroups {
    private static final int QUIET = 25;

    public static void main(String[] args) throws Exception {
        ClientConfig config = ClientConfig.builder().controllerURI(URI.create(args[0])).build();
        String name = args[3];
        ReaderGroupConfig reading = ReaderGroupConfig.builder()
                .automaticCheckpointIntervalMillis(1000).groupRefreshTimeMillis(200).stream(Stream.of(args[1], args[2])).build();
        java.util.Map<String, EventStreamReader<String>> readers = new java.util.HashMap<>();
        List<EventStreamClientFactory> factories = new ArrayList<>();
        try (ReaderGroupManager manager = ReaderGroupManager.withScope(args[1], config)) {
            for (int index = 4; index < args.length; index++) {
                String[] step = args[index].split(":");
                if (step[0].equals("create")) {
                    manager.createReaderGroup(name, reading);
                } else if (step[0].equals("delete")) {
                    manager.deleteReaderGroup(name);
                } else if (step[0].equals("halt")) {
                    System.out.flush();
                    Runtime.getRuntime().halt(0);
                } else if (step[0].equals("close")) {
                    readers.remove(step[1]).close();
                } else if (step[0].equals("lose")) {
                    readers.remove(step[1]);
                } else if (step[0].equals("offline")) {
                    try (ReaderGroup group = manager.getReaderGroup(name)) {
                        group.readerOffline(step[1], null);
                    }
                } else {
                    if (!readers.containsKey(step[1])) {
                        EventStreamClientFactory factory = EventStreamClientFactory.withScope(args[1], config);
                        factories.add(factory);
                        readers.put(step[1], factory.createReader(step[1], name, new UTF8StringSerializer(),
                                ReaderConfig.builder().build()));
                    }
                    read(readers.get(step[1]), step[1], Integer.parseInt(step[2]), step[0]);
                }
                System.out.println("done " + args[index]);
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void read(EventStreamReader<String> reader, String name, int wanted, String step)
            throws InterruptedException {
        boolean checkpoints = step.equals("checkpoints");
        int patience = step.equals("await") ? 12 * QUIET : QUIET;
        int count = 0;
        boolean passing = false;
        for (int quiet = 0; count < wanted && quiet < patience; quiet++) {
            EventRead<String> read = reader.readNextEvent(200);
            if (passing) {  // the call after the one that returned the checkpoint has written the position down
                System.out.println("checkpoint " + name);
                count += checkpoints ? 1 : 0;
                passing = false;
            }
            if (read.getEvent() != null) {
                System.out.println(read.getEventPointer() + " " + read.getEvent());
                count += checkpoints ? 0 : 1;
                quiet = -1;
                if (checkpoints) {
                    Thread.sleep(20);  // leaves events for later
                }
            } else if (read.isCheckpoint()) {
                passing = true;
                quiet--;
            }
        }
    }
}
