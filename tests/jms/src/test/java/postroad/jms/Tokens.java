package postroad.jms;

import java.io.IOException;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.Signature;
import java.security.interfaces.ECPublicKey;
import java.security.interfaces.EdECPublicKey;
import java.security.interfaces.RSAPublicKey;
import java.security.spec.ECGenParameterSpec;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;

/** Tokens (JWT) of an identity provider, and the file with its keys. */
final class Tokens {
    static final List<String> ALGORITHMS = List.of("RS256", "ES256", "EdDSA");

    private final KeyPair rsa;
    private final KeyPair elliptic;
    private final KeyPair edwards;

    Tokens() throws GeneralSecurityException {
        KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
        generator.initialize(2048);
        rsa = generator.generateKeyPair();
        generator = KeyPairGenerator.getInstance("EC");
        generator.initialize(new ECGenParameterSpec("secp256r1"));
        elliptic = generator.generateKeyPair();
        edwards = KeyPairGenerator.getInstance("Ed25519").generateKeyPair();
    }

    /** The configuration of a broker that accepts them: the group `app` may use every queue. */
    String configuration() throws IOException {
        Path file = Files.createTempFile(Files.createDirectories(Path.of("target").toAbsolutePath()), "jwks-", ".json");
        Files.writeString(file, keys());
        return """
                [[security.group]]
                name = "app"
                [[security.permission]]
                groups = ["app"]
                destinations = ["queue://>", "topic://>"]
                actions = ["read", "write", "create"]
                [[security.permission]]
                users = ["alice"]
                destinations = ["queue://>", "topic://>"]
                actions = ["read", "write", "create"]
                [security.oidc]
                issuer = "https://id.example"
                audience = ["postroad"]
                jwks = '%s'
                """.formatted(file);
    }

    /** A token of this user, who is in the group `app`. */
    String sign(String algorithm, String user, long expiresInSeconds) throws GeneralSecurityException {
        long expires = System.currentTimeMillis() / 1000 + expiresInSeconds;
        String header = "{\"alg\":\"%s\",\"kid\":\"%s\"}".formatted(algorithm, algorithm);
        String claims = "{\"iss\":\"https://id.example\",\"aud\":\"postroad\",\"sub\":\"%s\",\"groups\":[\"app\"],\"exp\":%d}"
                .formatted(user, expires);
        String message = text(header.getBytes(StandardCharsets.UTF_8)) + "." + text(claims.getBytes(StandardCharsets.UTF_8));
        Signature signature = switch (algorithm) {
            case "RS256" -> Signature.getInstance("SHA256withRSA");
            case "ES256" -> Signature.getInstance("SHA256withECDSAinP1363Format");
            default -> Signature.getInstance("Ed25519");
        };
        signature.initSign(switch (algorithm) {
            case "RS256" -> rsa.getPrivate();
            case "ES256" -> elliptic.getPrivate();
            default -> edwards.getPrivate();
        });
        signature.update(message.getBytes(StandardCharsets.US_ASCII));
        return message + "." + text(signature.sign());
    }

    private String keys() {
        RSAPublicKey first = (RSAPublicKey) rsa.getPublic();
        ECPublicKey second = (ECPublicKey) elliptic.getPublic();
        EdECPublicKey third = (EdECPublicKey) edwards.getPublic();
        byte[] point = number(third.getPoint().getY(), 32);
        for (int at = 0; at < 16; at++) {
            byte swapped = point[at];
            point[at] = point[31 - at];
            point[31 - at] = swapped;
        }
        point[31] |= (byte) (third.getPoint().isXOdd() ? 0x80 : 0);
        return """
                {"keys": [
                  {"kty": "RSA", "kid": "RS256", "use": "sig", "n": "%s", "e": "%s"},
                  {"kty": "EC", "kid": "ES256", "crv": "P-256", "x": "%s", "y": "%s"},
                  {"kty": "OKP", "kid": "EdDSA", "crv": "Ed25519", "x": "%s"}
                ]}
                """.formatted(text(number(first.getModulus(), 256)), text(first.getPublicExponent().toByteArray()),
                        text(number(second.getW().getAffineX(), 32)), text(number(second.getW().getAffineY(), 32)), text(point));
    }

    /** A number with this many bytes, the most significant first. */
    private static byte[] number(BigInteger number, int bytes) {
        byte[] all = number.toByteArray();
        byte[] padded = new byte[bytes];
        byte[] last = all.length > bytes ? Arrays.copyOfRange(all, all.length - bytes, all.length) : all;
        System.arraycopy(last, 0, padded, bytes - last.length, last.length);
        return padded;
    }

    private static String text(byte[] bytes) {
        return Base64.getUrlEncoder().withoutPadding().encodeToString(bytes);
    }
}
