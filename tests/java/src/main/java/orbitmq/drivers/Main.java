package orbitmq.drivers;
public final class Main { public static void main(String[] a) { System.out.println("{\"event\":\"hi\"}"); System.exit(0);} }
